// NCCL stand-in; documented in tests/emulator/nccl_records.h.
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "engine/core/error.h"
#include "engine/ops/rows/reduce.h"
#include "parallel/comm/collectives/collectives.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/nccl_records.h"

namespace {

using emulator::NcclRecord;
using trireme::concat;

trireme::DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64: return trireme::DType::kF64;
    case ncclFloat32: return trireme::DType::kF32;
    case ncclFloat16: return trireme::DType::kF16;
    case ncclBfloat16: return trireme::DType::kBF16;
    case ncclInt64: return trireme::DType::kI64;
    case ncclInt32: return trireme::DType::kI32;
    default: return trireme::DType::kU8;
  }
}

// One call of one rank.
struct Call {
  NcclRecord record;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::atomic<bool> done{false};
  int64_t bytes() const {
    return record.count * trireme::dtype_size(dtype_of(static_cast<ncclDataType_t>(record.type)));
  }
};
using CallPointer = std::shared_ptr<Call>;

// State shared by the ranks of one communicator.
struct Shared {
  std::mutex mutex;
  int number = 0, ranks = 0;
  std::vector<int> devices;                                 // by rank; -1: not joined yet
  std::map<int64_t, std::vector<CallPointer>> collectives;  // by number, by rank
  std::map<std::pair<int, int>, std::deque<CallPointer>> sends, receives;  // by (from, to)
  std::atomic<bool> failed{false};
  std::string error;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Shared> shared;
  int rank = 0;
  int64_t collectives = 0;  // started so far
  cudaStream_t stream = nullptr;
  bool blocking = true;
  bool connected = false;           // has run an operation
  bool finalized = false;           // or about to be finalized
  std::atomic<int> looks{0};        // remaining polls until the pending work is complete
  std::atomic<bool> settled{true};  // whether its completion was reported
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};

namespace {

// State of the process. Communicators stay, because their work may still be queued.
struct World {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Shared>> shared;  // by id
  std::vector<std::unique_ptr<ncclComm>> comms;
  std::vector<NcclRecord> records;
  int ids = 0, open = 0;
  int failing_device = -1;
};
World& world() {
  static World& the = *new World;
  return the;
}

struct PendingCall {
  ncclComm* comm;
  cudaStream_t stream;
  CallPointer call;
};
constinit thread_local int group_depth = 0;
constinit thread_local int group_number = 0;
thread_local std::vector<PendingCall> pending;

// Marks the communicator as in progress.
ncclResult_t begin(ncclComm& comm) {
  if (comm.blocking) return ncclSuccess;
  comm.looks = 2;
  comm.settled = false;
  return ncclInProgress;
}

void fail(Shared& shared, const std::string& what) {
  if (!shared.failed) shared.error = what;
  shared.failed = true;
}

bool all_there(Shared& shared) {
  const std::lock_guard lock(shared.mutex);
  return std::ranges::count(shared.devices, -1) == 0;
}

using Terms = std::vector<const std::byte*>;

// Sum, maximum or minimum of n elements, as the host's ring computes it on rank `owner`.
std::vector<std::byte> reduce(const Call& call, const Terms& terms, int64_t n, int owner) {
  const auto dtype = dtype_of(static_cast<ncclDataType_t>(call.record.type));
  const auto op = call.record.reduction == ncclSum   ? trireme::ReduceOp::kSum
                  : call.record.reduction == ncclMax ? trireme::ReduceOp::kMax
                                                     : trireme::ReduceOp::kMin;
  const int ranks = static_cast<int>(terms.size());
  std::vector<const void*> order;
  const bool is_short = dtype == trireme::DType::kBF16 || dtype == trireme::DType::kF16;
  for (int s = 0; s < ranks; ++s) {
    // Short floats are collected by the owner from itself downwards; the others are added as they
    // pass around the ring, starting with the rank after the owner.
    const int rank = is_short ? owner - s + ranks : owner + 1 + s;
    order.push_back(terms[static_cast<size_t>(rank % ranks)]);
  }
  std::vector<std::byte> result(static_cast<size_t>(n * trireme::dtype_size(dtype)));
  trireme::reduce_ranges(dtype, op, result.data(), order, n);
  return result;
}

Terms shifted(const Terms& terms, int64_t bytes) {
  Terms result;
  for (const std::byte* t : terms) result.push_back(t + bytes);
  return result;
}

void all_reduce(const std::vector<CallPointer>& calls, const Terms& terms) {
  const int ranks = static_cast<int>(calls.size());
  const int64_t n = calls[0]->record.count, width = n == 0 ? 1 : calls[0]->bytes() / n;
  std::vector<std::byte> all;
  for (int p = 0; p < ranks; ++p) {
    const trireme::Piece piece = trireme::piece_of(n, ranks, p);
    const auto part = reduce(*calls[0], shifted(terms, piece.begin * width), piece.size(),
                             (p - 1 + ranks) % ranks);
    all.insert(all.end(), part.begin(), part.end());
  }
  for (const CallPointer& call : calls) std::copy(all.begin(), all.end(), call->out);
}

// Runs a collective for all of its ranks, which have all arrived.
void run_collective(const std::vector<CallPointer>& calls) {
  const std::string& op = calls[0]->record.op;
  const int64_t bytes = calls[0]->bytes();
  Terms terms;
  for (const CallPointer& call : calls) terms.push_back(call->in);
  if (op == "AllReduce") return all_reduce(calls, terms);
  std::vector<std::vector<std::byte>> results(calls.size());
  const auto root = static_cast<size_t>(std::max(calls[0]->record.peer, 0));
  for (size_t r = 0; r < calls.size(); ++r) {
    auto& result = results[r];
    if (op == "AllGather")
      for (const std::byte* t : terms) result.insert(result.end(), t, t + bytes);
    else if (op == "Broadcast")
      result.assign(terms[root], terms[root] + bytes);
    else if (op == "ReduceScatter")
      result = reduce(*calls[r], shifted(terms, static_cast<int64_t>(r) * bytes),
                      calls[r]->record.count, static_cast<int>(r));
    else if (r == root)  // Reduce
      result = reduce(*calls[r], terms, calls[r]->record.count, static_cast<int>(r));
  }
  for (size_t r = 0; r < calls.size(); ++r)
    std::copy(results[r].begin(), results[r].end(), calls[r]->out);
}

std::string describe(const NcclRecord& r) {
  return concat(r.op, " of ", r.count, " elements of type ", r.type, ", reduction ", r.reduction,
                ", peer ", r.peer);
}

void arrive_collective(Shared& shared, int64_t number, const CallPointer& call) {
  auto& calls = shared.collectives[number];
  calls.resize(static_cast<size_t>(shared.ranks));
  calls[static_cast<size_t>(call->record.rank)] = call;
  const CallPointer* first = nullptr;
  for (const CallPointer& c : calls) {
    if (!c) continue;
    if (first == nullptr) first = &c;
    if (describe(c->record) != describe((*first)->record))
      return fail(shared,
                  concat("rank ", c->record.rank, " calls ", describe(c->record), " while rank ",
                         (*first)->record.rank, " calls ", describe((*first)->record)));
  }
  if (std::ranges::any_of(calls, [](const CallPointer& c) { return !c; })) return;
  run_collective(calls);
  for (const CallPointer& c : calls) c->done = true;
  shared.collectives.erase(number);
}

void arrive_message(Shared& shared, const CallPointer& call) {
  const bool sends = call->record.op == "Send";
  const std::pair<int, int> way = sends ? std::pair{call->record.rank, call->record.peer}
                                        : std::pair{call->record.peer, call->record.rank};
  auto& sent = shared.sends[way];
  auto& received = shared.receives[way];
  (sends ? sent : received).push_back(call);
  if (sent.empty() || received.empty()) return;
  const CallPointer from = sent.front(), to = received.front();
  sent.pop_front();
  received.pop_front();
  if (from->record.count != to->record.count || from->record.type != to->record.type)
    return fail(shared, concat("rank ", way.first, " sends ", from->record.count, " of type ",
                               from->record.type, ", rank ", way.second, " receives ",
                               to->record.count, " of type ", to->record.type));
  std::copy(from->in, from->in + from->bytes(), to->out);
  from->done = to->done = true;
}

struct Arrival {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<std::atomic<bool>> aborted;
  int64_t number = -1;  // of a collective
  CallPointer call;
};

// Runs the work of one group call on one stream.
void run_arrivals(const std::vector<Arrival>& arrivals) {
  for (const Arrival& a : arrivals) {
    const std::lock_guard lock(a.shared->mutex);
    if (*a.aborted || a.shared->failed) continue;
    if (a.number >= 0)
      arrive_collective(*a.shared, a.number, a.call);
    else
      arrive_message(*a.shared, a.call);
  }
  emulator::block_until([&] {
    return std::ranges::all_of(
        arrivals, [](const Arrival& a) { return a.call->done || *a.aborted || a.shared->failed; });
  });
}

ncclResult_t give_pending() {
  std::map<cudaStream_t, std::vector<Arrival>> by_stream;
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(world().mutex);
    ++group_number;
    for (PendingCall& p : pending) {
      p.call->record.group = group_number;
      world().records.push_back(p.call->record);
      // NCCL orders the work of a communicator on two streams by waits; the product never needs it.
      if (p.comm->stream != nullptr && p.comm->stream != p.stream)
        fail(*p.comm->shared, "a communicator's work on two streams");
      p.comm->stream = p.stream;
      if (!std::exchange(p.comm->connected, true)) result = begin(*p.comm);
      const bool message = p.call->record.op == "Send" || p.call->record.op == "Recv";
      by_stream[p.stream].push_back(
          {p.comm->shared, p.comm->aborted, message ? -1 : p.comm->collectives++, p.call});
    }
  }
  pending.clear();
  for (auto& [stream, arrivals] : by_stream) {
    const std::string name = concat("nccl", arrivals[0].call->record.op);
    const cudaError_t error = emulator::enqueue(
        stream, name.c_str(), [arrivals = std::move(arrivals)] { run_arrivals(arrivals); });
    if (error != cudaSuccess) return ncclUnhandledCudaError;
  }
  return result;
}

ncclResult_t give(const char* op, const void* in, void* out, size_t count, ncclDataType_t type,
                  int reduction, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr || *comm->aborted) return ncclInvalidArgument;
  if (peer >= comm->shared->ranks) return ncclInvalidArgument;
  if (!comm->settled || comm->finalized) {
    const std::lock_guard lock(comm->shared->mutex);
    fail(*comm->shared, concat("a communicator is used while it is in progress: ", op));
    return ncclInvalidUsage;
  }
  auto call = std::make_shared<Call>();
  call->record = {comm->rank,
                  comm->shared->devices[static_cast<size_t>(comm->rank)],
                  comm->shared->ranks,
                  comm->shared->number,
                  op,
                  static_cast<int64_t>(count),
                  static_cast<int>(type),
                  reduction,
                  peer,
                  stream,
                  0};
  call->in = static_cast<const std::byte*>(in);
  call->out = static_cast<std::byte*>(out);
  pending.push_back({comm, stream, std::move(call)});
  return group_depth > 0 ? ncclSuccess : give_pending();
}

ncclResult_t close(ncclComm_t comm, bool abort) {
  if (comm == nullptr || *comm->aborted) return ncclInvalidArgument;
  if (!abort && group_depth != 0) {
    const std::lock_guard lock(comm->shared->mutex);
    fail(*comm->shared, "a communicator ends inside a group call");
    return ncclInvalidUsage;
  }
  // Stays open, so that the tests detect it.
  if (!abort && !comm->blocking && !(comm->finalized && comm->settled)) return ncclInvalidUsage;
  *comm->aborted = true;
  const std::lock_guard lock(world().mutex);
  --world().open;
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const std::lock_guard lock(world().mutex);
  const std::string text = concat("communicator ", world().ids++);
  std::copy(text.begin(), text.end(), id->internal);
  auto shared = std::make_shared<Shared>();
  shared->number = world().ids - 1;
  world().shared[text] = std::move(shared);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->magic != 0x0cc1 || rank < 0 || rank >= ranks || group_depth != 0)
    return ncclInvalidArgument;
  std::shared_ptr<Shared> shared;
  int device = 0;
  {
    const std::lock_guard lock(world().mutex);
    shared = world().shared[id.internal];
    if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
    if (ranks > 1 && device == world().failing_device) return ncclSystemError;
  }
  if (!shared) return ncclInvalidArgument;
  {
    const std::lock_guard lock(shared->mutex);
    if (shared->ranks == 0) shared->devices.resize(static_cast<size_t>(ranks), -1);
    if (shared->ranks != 0 && shared->ranks != ranks) return ncclInvalidArgument;
    shared->ranks = ranks;
    // As in NCCL: "Duplicate GPU detected".
    if (std::ranges::count(shared->devices, device) > 0) return ncclInvalidUsage;
    shared->devices[static_cast<size_t>(rank)] = device;
  }
  const bool blocking = config->blocking != 0;
  if (blocking) emulator::block_until([&] { return all_there(*shared); });
  const std::lock_guard lock(world().mutex);
  ++world().open;
  *comm = world().comms.emplace_back(std::make_unique<ncclComm>()).get();
  (*comm)->shared = std::move(shared);
  (*comm)->rank = rank;
  (*comm)->blocking = blocking;
  return begin(**comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr || *comm->aborted || !comm->settled) return ncclInvalidUsage;
  comm->finalized = true;
  return begin(*comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return close(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return close(comm, true); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm->shared->failed)
    *error = ncclInvalidUsage;
  else if (comm->settled)
    *error = ncclSuccess;
  else if (!all_there(*comm->shared) || comm->looks-- > 0)
    *error = ncclInProgress;
  else
    comm->settled = true, *error = ncclSuccess;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array<const char*, 8> kNames{
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process error",   "in progress"};
  return kNames[static_cast<size_t>(result)];
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm == nullptr ? "" : comm->shared->error.c_str();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return give("AllReduce", in, out, count, type, op, -1, comm, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return give("Reduce", in, out, count, type, op, root, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return give("ReduceScatter", in, out, count, type, op, -1, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return give("AllGather", in, out, count, type, 0, -1, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return give("Broadcast", in, out, count, type, 0, root, comm, stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return give("Send", data, nullptr, count, type, 0, peer, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return give("Recv", nullptr, data, count, type, 0, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  return --group_depth > 0 || pending.empty() ? ncclSuccess : give_pending();
}

namespace emulator {

std::vector<NcclRecord> nccl_records() {
  const std::lock_guard lock(world().mutex);
  return world().records;
}
int nccl_open_comms() {
  const std::lock_guard lock(world().mutex);
  return world().open;
}
void reset_nccl() {
  const std::lock_guard lock(world().mutex);
  world().records.clear();
}
void fail_nccl_init(int device) {
  const std::lock_guard lock(world().mutex);
  world().failing_device = device;
}

}  // namespace emulator
