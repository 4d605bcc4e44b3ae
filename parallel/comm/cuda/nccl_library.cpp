#include "parallel/comm/cuda/nccl_library.h"

#include "engine/core/error.h"
#include "engine/device/cuda/shared_library.h"

namespace trireme::cuda {
namespace {

#ifdef TRIREME_EMULATED
#define TRIREME_NCCL_FUNCTION(name) library.name = &nccl##name
#else
#define TRIREME_NCCL_FUNCTION(name) load_function(opened, library.name, "nccl" #name)
#endif

void find_functions(NcclLibrary& library, [[maybe_unused]] const SharedLibrary& opened) {
  TRIREME_NCCL_FUNCTION(GetVersion);
  TRIREME_NCCL_FUNCTION(GetUniqueId);
  TRIREME_NCCL_FUNCTION(CommInitRankConfig);
  TRIREME_NCCL_FUNCTION(CommFinalize);
  TRIREME_NCCL_FUNCTION(CommDestroy);
  TRIREME_NCCL_FUNCTION(CommAbort);
  TRIREME_NCCL_FUNCTION(CommGetAsyncError);
  TRIREME_NCCL_FUNCTION(GetErrorString);
  TRIREME_NCCL_FUNCTION(GetLastError);
  TRIREME_NCCL_FUNCTION(AllReduce);
  TRIREME_NCCL_FUNCTION(Reduce);
  TRIREME_NCCL_FUNCTION(ReduceScatter);
  TRIREME_NCCL_FUNCTION(AllGather);
  TRIREME_NCCL_FUNCTION(Broadcast);
  TRIREME_NCCL_FUNCTION(Send);
  TRIREME_NCCL_FUNCTION(Recv);
  TRIREME_NCCL_FUNCTION(GroupStart);
  TRIREME_NCCL_FUNCTION(GroupEnd);
}

NcclLibrary load() {
  NcclLibrary library;
  SharedLibrary opened;
#ifndef TRIREME_EMULATED
  opened = open_shared_library("libnccl.so.2");
  if (!opened.present()) {
    library.reason = opened.reason;
    return library;
  }
#endif
  try {
    find_functions(library, opened);
  } catch (const InputError& error) {
    library.reason = error.what();
    return library;
  }
  if (library.GetVersion(&library.version) != ncclSuccess)
    library.reason = "libnccl.so.2 reports no version";
  else if (library.version < NCCL_VERSION_CODE / 100 * 100)
    library.reason = concat("libnccl.so.2 has version ", library.version, ", expected ", NCCL_MAJOR,
                            ".", NCCL_MINOR, " or later");
  return library;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load();
  return library;
}

void check_nccl(ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const NcclLibrary& nccl = nccl_library();
  throw Error(concat(what, ": NCCL failed: ", nccl.GetErrorString(result), " (",
                     nccl.GetLastError(nullptr), "); NCCL_DEBUG=WARN logs the details"));
}

}  // namespace trireme::cuda
