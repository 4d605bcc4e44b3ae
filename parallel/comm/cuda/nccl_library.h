// NCCL, loaded when a rank first needs it. For CUDA sources only.
#pragma once

#include <nccl.h>

#include <string>

namespace trireme::cuda {

// NCCL's functions, by their names without "nccl".
struct NcclLibrary {
  std::string reason;  // why it cannot be used; empty: usable
  int version = 0;     // 22809: 2.28.9

  decltype(&ncclGetVersion) GetVersion = nullptr;
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommFinalize) CommFinalize = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclAllReduce) AllReduce = nullptr;
  decltype(&ncclReduce) Reduce = nullptr;
  decltype(&ncclReduceScatter) ReduceScatter = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclBroadcast) Broadcast = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
};

// Instance of the process. Never throws; stays loaded, because the library keeps threads.
const NcclLibrary& nccl_library();

// Throws Error with the library's message; `what`: the operation. Our communicators are
// non-blocking: ncclInProgress is not an error, and wait_until_issued() (nccl_group.h) waits for
// the result.
void check_nccl(ncclResult_t result, const std::string& what);

}  // namespace trireme::cuda
