// Collectives and messages of GPU tensors through NCCL (parallel/comm/device/device_collectives.h).
//
// A group gets its NCCL communicator when it is made, the world when the device is attached.
// Collectives of all groups are queued on the context's comm stream. A path of posted messages has
// a communicator of its two ranks and a stream on each, so that a receive waiting on the device
// blocks nothing else. On one stream, two neighbours that both post a receive before the send that
// the other waits for would deadlock.
#include <cuda_runtime.h>

#include <exception>
#include <numeric>

#include "engine/device/launch.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/cuda/nccl_group.h"
#include "parallel/comm/device/device_work.h"

namespace trireme::cuda {
namespace {

using Form = CollectiveCall::Form;

// A receive posted early occupies its CUDA blocks while it waits, so it gets few.
constexpr int kPathBlocks = 4;

// Element type in NCCL's terms. Types that NCCL does not have move as bytes.
struct Elements {
  ncclDataType_t type = ncclUint8;
  size_t width = 1;  // NCCL elements per element
  size_t count(int64_t n) const { return static_cast<size_t>(n) * width; }
};

Elements elements_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return {ncclFloat64};
    case DType::kF32: return {ncclFloat32};
    case DType::kBF16: return {ncclBfloat16};
    case DType::kF16: return {ncclFloat16};
    case DType::kI64: return {ncclInt64};
    case DType::kI32: return {ncclInt32};
    case DType::kU16: return {ncclUint8, 2};
    case DType::kU8: return {ncclUint8};
  }
  TRIREME_UNREACHABLE("NCCL type of ", dtype);
}

ncclRedOp_t reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return ncclSum;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kMin: return ncclMin;
  }
  TRIREME_UNREACHABLE("NCCL reduction ", op);
}

// NCCL group call: the calls between construction and end() form one operation.
class Grouped {
 public:
  explicit Grouped(const std::string& what) : what_(what) {
    check_nccl(nccl_library().GroupStart(), what_);
  }
  Grouped(const Grouped&) = delete;
  Grouped& operator=(const Grouped&) = delete;
  ~Grouped() {
    if (open_) (void)nccl_library().GroupEnd();  // an exception is in flight
  }
  void end() {
    open_ = false;
    check_nccl(nccl_library().GroupEnd(), what_);
  }

 private:
  const std::string& what_;
  bool open_ = true;
};

// Parameters of one call to NCCL.
struct Issue {
  const NcclLibrary& nccl;
  const std::string& what;
  ncclComm_t comm;
  cudaStream_t stream;
  int rank, size;

  void check(ncclResult_t result) const { check_nccl(result, what); }

  void send(const void* data, DType dtype, int64_t n, int to) const {
    const Elements e = elements_of(dtype);
    if (n > 0) check(nccl.Send(data, e.count(n), e.type, to, comm, stream));
  }
  void recv(void* data, DType dtype, int64_t n, int from) const {
    const Elements e = elements_of(dtype);
    if (n > 0) check(nccl.Recv(data, e.count(n), e.type, from, comm, stream));
  }

  // Equal pieces use NCCL's own collective, uneven pieces one grouped operation each.
  void gather_pieces(const Tensor& data) const {
    const Elements e = elements_of(data.dtype());
    const int64_t n = data.numel(), width = dtype_size(data.dtype());
    auto* const base = static_cast<std::byte*>(data.raw());
    if (n % size == 0) {
      const void* own = base + n / size * rank * width;
      return check(nccl.AllGather(own, base, e.count(n / size), e.type, comm, stream));
    }
    Grouped grouped(what);
    for (int r = 0; r < size; ++r) {
      const Piece piece = piece_of(n, size, r);
      std::byte* const at = base + piece.begin * width;
      if (piece.size() > 0)
        check(nccl.Broadcast(at, at, e.count(piece.size()), e.type, r, comm, stream));
    }
    grouped.end();
  }

  void reduce_pieces(const Tensor& data, ReduceOp op) const {
    const Elements e = elements_of(data.dtype());
    const int64_t n = data.numel(), width = dtype_size(data.dtype());
    auto* const base = static_cast<std::byte*>(data.raw());
    if (n % size == 0) {
      void* own = base + n / size * rank * width;
      return check(
          nccl.ReduceScatter(base, own, e.count(n / size), e.type, reduction(op), comm, stream));
    }
    Grouped grouped(what);
    for (int r = 0; r < size; ++r) {
      const Piece piece = piece_of(n, size, r);
      std::byte* const at = base + piece.begin * width;
      if (piece.size() > 0)
        check(nccl.Reduce(at, at, e.count(piece.size()), e.type, reduction(op), r, comm, stream));
    }
    grouped.end();
  }

  void all_to_all(const CollectiveCall& call) const {
    const int64_t width = dtype_size(call.in.dtype());
    const auto* in = static_cast<const std::byte*>(call.in.raw());
    auto* out = static_cast<std::byte*>(call.out.raw());
    Grouped grouped(what);
    for (int r = 0; r < size; ++r) {
      const int64_t to = call.in_counts[static_cast<size_t>(r)];
      const int64_t from = call.out_counts[static_cast<size_t>(r)];
      send(in, call.in.dtype(), to, r);
      recv(out, call.out.dtype(), from, r);
      in += to * width;
      out += from * width;
    }
    grouped.end();
  }

  void messages(const CollectiveCall& call) const {
    Grouped grouped(what);
    if (call.form != Form::kRecv) send(call.in.raw(), call.in.dtype(), call.in.numel(), call.to);
    if (call.form != Form::kSend)
      recv(call.out.raw(), call.out.dtype(), call.out.numel(), call.from);
    grouped.end();
  }

  void operator()(const CollectiveCall& call) const {
    const Tensor& out = call.out;
    const ConstTensor& in = call.in;
    const Elements e = elements_of(call.payload().dtype());
    const size_t count = e.count(call.payload().numel());
    switch (call.form) {
      case Form::kAllReduce:
        return check(nccl.AllReduce(out.raw(), out.raw(), count, e.type, reduction(call.reduce),
                                    comm, stream));
      case Form::kAllGather:
        return check(nccl.AllGather(in.raw(), out.raw(), count, e.type, comm, stream));
      case Form::kReduceScatter:
        return check(nccl.ReduceScatter(in.raw(), out.raw(), e.count(out.numel()), e.type,
                                        reduction(call.reduce), comm, stream));
      case Form::kAllGatherPieces: return gather_pieces(out);
      case Form::kReduceScatterPieces: return reduce_pieces(out, call.reduce);
      case Form::kBroadcast:
        return check(nccl.Broadcast(out.raw(), out.raw(), count, e.type, call.from, comm, stream));
      case Form::kAllToAll: return all_to_all(call);
      case Form::kSend:
      case Form::kRecv:
      case Form::kSendRecv: return messages(call);
    }
  }
};

// True if every rank knows from its own operands alone that no data moves.
bool moves_nothing(const CollectiveCall& call) {
  const bool nothing_in = !call.in.present() || call.in.numel() == 0;
  const bool nothing_out = !call.out.present() || call.out.numel() == 0;
  const bool known = call.form != Form::kAllToAll && call.form != Form::kSendRecv;
  return known && nothing_in && nothing_out;
}

class OnDevice final : public DevicePart {
 public:
  OnDevice(Context& gpu, RankState& rank_state, DeviceCollectives::Group group, const OpInfo& op,
           std::shared_ptr<Event> event)
      : gpu_(gpu),
        rank_state_(rank_state),
        group_(std::move(group)),
        op_(op),
        event_(std::move(event)) {}
  void wait() override {
    rank_state_.liveness.throw_if_lost(op_);
    cuda::wait_for(gpu_, *event_);
  }
  bool done() override { return cuda::done(*event_); }

 private:
  Context& gpu_;
  RankState& rank_state_;
  DeviceCollectives::Group group_;  // op_ refers to its name
  OpInfo op_;
  std::shared_ptr<Event> event_;
};

class NcclCollectives final : public DeviceCollectives {
 public:
  NcclCollectives(Context& gpu, RankState& rank_state)
      : gpu_(gpu), rank_state_(rank_state), before_(make_event(gpu)), watch_(gpu, rank_state) {}

  ~NcclCollectives() override {
    for (auto& [key, path] : paths_) end(path);
    for (auto& [context, comm] : groups_) end(comm, gpu_.comm);
  }

  Context& gpu() override { return gpu_; }
  std::string name() const override {
    const int v = nccl_library().version;
    return concat("nccl ", v / 10000, ".", v / 100 % 100, ".", v % 100);
  }

  Work start(const Group& group, const CollectiveCall& call) override {
    count(*group, call);
    if (moves_nothing(call)) return {};
    const auto found = groups_.find(group->context);
    TRIREME_CHECK(found != groups_.end(), "group \"", group->name,
                  "\" was made before a device was attached");
    return queue(group, call, *found->second, gpu_.comm, group->rank, group->size(), call);
  }

  Work post(const Group& group, const CollectiveCall& call) override {
    const bool sends = call.form == Form::kSend;
    const MessagePath key =
        sends ? MessagePath{group->rank, call.to} : MessagePath{call.from, group->rank};
    const auto found = paths_.find({group->context, key});
    TRIREME_CHECK(found != paths_.end(), "group \"", group->name, "\": the path of messages from ",
                  key.from, " to ", key.to, " was not opened");
    count(*group, call);
    if (moves_nothing(call)) return {};
    CollectiveCall in_pair = call;  // the sender is rank 0 of the pair
    (sends ? in_pair.to : in_pair.from) = sends ? 1 : 0;
    return queue(group, call, *found->second.comm, found->second.stream, sends ? 0 : 1, 2, in_pair);
  }

  // In a run of one rank NCCL was selected by name, so groups of one rank use it too.
  bool carries(const GroupState& group) const override {
    return group.size() > 1 || rank_state_.transport->size() == 1;
  }

  void open(const Group& group) override {
    if (!carries(*group)) return;
    std::vector<int> ranks(static_cast<size_t>(group->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    auto comm = make_nccl_comm(group, ranks, concat("group \"", group->name, "\""), 0);
    watch_.add(comm);
    groups_.emplace(group->context, std::move(comm));
  }

  // Opens paths one after the other in the order common to all ranks. Each gets a first message at
  // once, because NCCL connects two ranks at their first message, which needs both present.
  void open_paths(const Group& group, std::span<const MessagePath> paths) override {
    for (const MessagePath& path : paths) {
      const bool here = path.from == group->rank || path.to == group->rank;
      const std::pair key{group->context, path};
      if (!here || paths_.contains(key)) continue;
      const std::string name = concat("messages from rank ", path.from, " to ", path.to,
                                      " of group \"", group->name, "\"");
      Path made{make_nccl_comm(group, {path.from, path.to}, name, kPathBlocks), make_stream()};
      watch_.add(made.comm);
      connect(*group, paths_.emplace(key, std::move(made)).first->second, path.from == group->rank);
    }
  }

  void forget(const GroupState& group) noexcept override {
    const auto found = groups_.find(group.context);
    if (found != groups_.end()) {
      end(found->second, gpu_.comm);
      groups_.erase(found);
    }
    for (auto it = paths_.begin(); it != paths_.end();) {
      if (it->first.first != group.context) {
        ++it;
        continue;
      }
      end(it->second);
      it = paths_.erase(it);
    }
  }

  void give_up() noexcept override { watch_.abort_all(); }

 private:
  struct Path {
    std::shared_ptr<NcclComm> comm;
    Stream stream;
  };

  static Stream make_stream() {
    int least = 0, greatest = 0;
    check_runtime(cudaDeviceGetStreamPriorityRange(&least, &greatest), "message path",
                  "cudaDeviceGetStreamPriorityRange");
    cudaStream_t raw = nullptr;
    check_runtime(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, greatest),
                  "message path", "cudaStreamCreateWithPriority");
    return {raw};
  }

  void connect(const GroupState& group, const Path& path, bool sends) const {
    const Buffer byte("message path", 256, Memory::kDevice);
    const OpInfo op{
        sends ? CommKind::kSend : CommKind::kRecv, &group.name, group.rank, group.size(), 1, false};
    std::unique_lock held(path.comm->mutex);
    if (path.comm->raw == nullptr)
      rank_state_.liveness.fail(op, concat(path.comm->name, " was ended"));
    const Issue issue{nccl_library(), path.comm->name,
                      path.comm->raw, static_cast<cudaStream_t>(path.stream.raw),
                      sends ? 0 : 1,  2};
    if (sends)
      issue.send(byte.data(), DType::kU8, 1, 1);
    else
      issue.recv(byte.data(), DType::kU8, 1, 0);
    wait_until_issued(*path.comm, rank_state_, op);
    held.unlock();
    synchronize(gpu_, path.stream);
  }

  void count(GroupState& group, const CollectiveCall& call) const {
    const OpInfo op{call.kind(), &group.name, group.rank, group.size(), call.payload().bytes(),
                    false};
    rank_state_.liveness.throw_if_lost(op);
    const bool message =
        call.form == Form::kSend || call.form == Form::kRecv || call.form == Form::kSendRecv;
    if (rank_state_.options.check_operations && !message)
      rank_state_.worker.run([&] {
        Operation checked(group, CommKind::kControl, 0);
        checked.info().kind = call.kind();
        checked.info().bytes = call.payload().bytes();
        check_same_operation(checked, call.payload().dtype(), call.reduce,
                             call.form == Form::kBroadcast ? call.from : 0);
      });
    count_device_call(group, call, ring_bytes(call, group.rank, group.size()));
  }

  // Queues a call on `stream` after the work queued so far on the main stream. issued: the call in
  // ranks of `comm`.
  Work queue(const Group& group, const CollectiveCall& call, NcclComm& comm, const Stream& stream,
             int rank, int size, const CollectiveCall& issued) {
    const OpInfo op{call.kind(),   &group->name,           group->rank,
                    group->size(), call.payload().bytes(), false};
    auto event = std::make_shared<Event>(make_event(gpu_));
    record(before_, gpu_.main);
    wait(stream, before_);
    {
      const std::lock_guard held(comm.mutex);
      if (comm.raw == nullptr) rank_state_.liveness.fail(op, concat(comm.name, " was ended"));
      const std::string what = text(op);
      Issue{nccl_library(), what, comm.raw, static_cast<cudaStream_t>(stream.raw), rank, size}(
          issued);
      wait_until_issued(comm, rank_state_, op);
    }
    record(*event, stream);
    ++gpu_.launches;
    // Not for messages: they may be posted long before the peer's part is computed.
    if (gpu_.synchronous && call.form != Form::kSend && call.form != Form::kRecv)
      synchronize(gpu_, stream);
    watch_.queued(event, op);
    return CommWorker::queued(
        std::make_shared<OnDevice>(gpu_, rank_state_, group, op, std::move(event)));
  }

  // Waits for the queued work, then ends the communicator; a loss meanwhile aborts it and so ends
  // the wait. During exception unwinding it aborts at once, since peers may never arrive.
  void end(const std::shared_ptr<NcclComm>& comm, const Stream& stream) noexcept {
    const bool unwinding = std::uncaught_exceptions() > 0;
    if (!unwinding) (void)cudaStreamSynchronize(static_cast<cudaStream_t>(stream.raw));
    watch_.remove(comm);
    const std::lock_guard held(comm->mutex);
    unwinding ? abort_nccl_comm(*comm) : end_nccl_comm(*comm, rank_state_);
  }

  void end(const Path& path) noexcept {
    end(path.comm, path.stream);
    (void)cudaStreamDestroy(static_cast<cudaStream_t>(path.stream.raw));
  }

  Context& gpu_;
  RankState& rank_state_;
  Event before_;  // recorded on the main stream before each operation
  std::map<int, std::shared_ptr<NcclComm>> groups_;  // by the group's context number
  std::map<std::pair<int, MessagePath>, Path> paths_;
  NcclWatch watch_;  // last: its thread uses the above
};

}  // namespace

NcclStatus probe_nccl(const Context& gpu) {
  NcclStatus status;
  const NcclLibrary& nccl = nccl_library();
  status.reason = nccl.reason;
  if (nccl.reason.empty())
    status.version =
        concat(nccl.version / 10000, ".", nccl.version / 100 % 100, ".", nccl.version % 100);
  char bus_id[32] = "";
  check_runtime(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, gpu.device), "open device",
                "cudaDeviceGetPCIBusId");
  status.bus_id = bus_id;
  return status;
}

std::unique_ptr<DeviceCollectives> make_nccl_collectives(Context& gpu, RankState& rank_state) {
  return std::make_unique<NcclCollectives>(gpu, rank_state);
}

}  // namespace trireme::cuda
