#include "parallel/comm/communicator.h"

#include <algorithm>

#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/device/device_collectives.h"

namespace trireme {
namespace {

void check_operand(const char* op, const char* operand, const ConstTensor& t) {
  check_contiguous(op, operand, t);
  TRIREME_CHECK(t.numel() == 0 || t.raw() != nullptr, op, ": ", operand, " has no memory");
}

void check_reducible(const char* op, DType dtype) {
  const bool known = is_float(dtype) || dtype == DType::kI64 || dtype == DType::kI32;
  TRIREME_CHECK(known, op, ": dtype ", dtype, " is not supported");
}

void check_same_device(const char* op, const ConstTensor& a, const ConstTensor& b) {
  TRIREME_CHECK(a.device() == b.device(), op, " between ", a.device(), " and ", b.device());
}

// Checks that `whole` holds one `part` per rank.
void check_pieces(const char* op, const ConstTensor& whole, const ConstTensor& part, int size) {
  check_same_device(op, whole, part);
  TRIREME_CHECK(whole.dtype() == part.dtype(), op, " of ", whole.dtype(), " and ", part.dtype());
  TRIREME_CHECK(whole.numel() == checked_mul(part.numel(), size), op, ": ", whole.shape(),
                " does not have ", size, " times the elements of ", part.shape());
}

void check_rank(const GroupState& group, const char* op, int rank) {
  TRIREME_CHECK(rank >= 0 && rank < group.size(), op, ": rank ", rank, " is not in group \"",
                group.name, "\" of ", group.size(), " ranks");
}

}  // namespace

CommAlgorithm parse_comm_algorithm(const std::string& name) {
  if (name == "auto") return CommAlgorithm::kAuto;
  if (name == "ring") return CommAlgorithm::kRing;
  if (name == "shm") return CommAlgorithm::kShm;
  fail_input("comm.algorithm \"", name, "\" is not supported; supported: auto, ring, shm");
}

// Waits, because started operations refer to the group.
Communicator::~Communicator() {
  state_->rank_state->worker.run([] {});
  if (state_->rank_state->device) state_->rank_state->device->forget(*state_);
}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size(); }
const std::string& Communicator::name() const { return state_->name; }
int Communicator::world_rank(int rank) const {
  check_rank(*state_, "world_rank", rank);
  return state_->members[static_cast<size_t>(rank)];
}
int Communicator::nodes() const { return static_cast<int>(state_->nodes.size()); }
int Communicator::node(int rank) const {
  return state_->rank_state->coordinates[static_cast<size_t>(world_rank(rank))].node;
}
const CommOptions& Communicator::options() const { return state_->rank_state->options; }

// Every method checks its operands in the calling thread, then passes the call on.
#define TRIREME_RUN(...) state_->rank_state->worker.run([&] { __VA_ARGS__; })

namespace {

using Form = CollectiveCall::Form;

void run(const std::shared_ptr<GroupState>& group, const CollectiveCall& call) {
  if (call.on_device()) return start_on_device(group, call).wait();
  group->rank_state->worker.run([&] { run_on_host(*group, call); });
}

Work start(const std::shared_ptr<GroupState>& group, CollectiveCall call) {
  if (call.on_device()) return start_on_device(group, call);
  return group->rank_state->worker.start(
      [state = group.get(), call = std::move(call)] { run_on_host(*state, call); });
}

CollectiveCall checked_all_reduce(const Tensor& data, ReduceOp op) {
  check_operand("all_reduce", "data", data);
  check_reducible("all_reduce", data.dtype());
  return {.form = Form::kAllReduce, .out = data, .reduce = op};
}

CollectiveCall checked_all_gather(const Tensor& out, const ConstTensor& in, int size) {
  check_operand("all_gather", "out", out);
  check_operand("all_gather", "in", in);
  check_pieces("all_gather", out, in, size);
  return {.form = Form::kAllGather, .out = out, .in = in};
}

CollectiveCall checked_reduce_scatter(const Tensor& out, const ConstTensor& in, ReduceOp op,
                                      int size) {
  check_operand("reduce_scatter", "out", out);
  check_operand("reduce_scatter", "in", in);
  check_reducible("reduce_scatter", in.dtype());
  check_pieces("reduce_scatter", in, out, size);
  return {.form = Form::kReduceScatter, .out = out, .in = in, .reduce = op};
}

CollectiveCall checked_all_gather_v(const Tensor& data) {
  check_operand("all_gather_v", "data", data);
  return {.form = Form::kAllGatherPieces, .out = data};
}

CollectiveCall checked_reduce_scatter_v(const Tensor& data, ReduceOp op) {
  check_operand("reduce_scatter_v", "data", data);
  check_reducible("reduce_scatter_v", data.dtype());
  return {.form = Form::kReduceScatterPieces, .out = data, .reduce = op};
}

CollectiveCall checked_broadcast(const GroupState& group, const Tensor& data, int root) {
  check_operand("broadcast", "data", data);
  check_rank(group, "broadcast", root);
  return {.form = Form::kBroadcast, .out = data, .from = root};
}

}  // namespace

void Communicator::all_reduce(const Tensor& data, ReduceOp op) {
  run(state_, checked_all_reduce(data, op));
}

Work Communicator::all_reduce_async(const Tensor& data, ReduceOp op) {
  return start(state_, checked_all_reduce(data, op));
}

void Communicator::all_gather(const Tensor& out, const ConstTensor& in) {
  run(state_, checked_all_gather(out, in, size()));
}

Work Communicator::all_gather_async(const Tensor& out, const ConstTensor& in) {
  return start(state_, checked_all_gather(out, in, size()));
}

void Communicator::reduce_scatter(const Tensor& out, const ConstTensor& in, ReduceOp op) {
  run(state_, checked_reduce_scatter(out, in, op, size()));
}

Work Communicator::reduce_scatter_async(const Tensor& out, const ConstTensor& in, ReduceOp op) {
  return start(state_, checked_reduce_scatter(out, in, op, size()));
}

void Communicator::all_gather_v(const Tensor& data) { run(state_, checked_all_gather_v(data)); }

Work Communicator::all_gather_v_async(const Tensor& data) {
  return start(state_, checked_all_gather_v(data));
}

void Communicator::reduce_scatter_v(const Tensor& data, ReduceOp op) {
  run(state_, checked_reduce_scatter_v(data, op));
}

Work Communicator::reduce_scatter_v_async(const Tensor& data, ReduceOp op) {
  return start(state_, checked_reduce_scatter_v(data, op));
}

void Communicator::broadcast(const Tensor& data, int root) {
  run(state_, checked_broadcast(*state_, data, root));
}

Work Communicator::broadcast_async(const Tensor& data, int root) {
  return start(state_, checked_broadcast(*state_, data, root));
}

void Communicator::all_to_all(const Tensor& out, const ConstTensor& in) {
  TRIREME_CHECK(in.numel() % size() == 0, "all_to_all: ", in.shape(), " cannot be divided among ",
                size(), " ranks");
  const std::vector<int64_t> counts(static_cast<size_t>(size()), in.numel() / size());
  all_to_all_v(out, counts, in, counts);
}

namespace {

CollectiveCall checked_all_to_all(const GroupState& group, const Tensor& out,
                                  std::span<const int64_t> out_counts, const ConstTensor& in,
                                  std::span<const int64_t> in_counts) {
  check_operand("all_to_all", "out", out);
  check_operand("all_to_all", "in", in);
  TRIREME_CHECK(out.dtype() == in.dtype(), "all_to_all: out is ", out.dtype(), ", in is ",
                in.dtype());
  check_same_device("all_to_all", out, in);
  const auto check_counts = [&](std::span<const int64_t> counts, const ConstTensor& t) {
    TRIREME_CHECK(counts.size() == group.members.size(), "all_to_all: ", counts.size(),
                  " counts, expected one for each of ", group.size(), " ranks");
    int64_t total = 0;
    for (int64_t c : counts) {
      TRIREME_CHECK(c >= 0, "all_to_all: a count is ", c, ", expected at least 0");
      total = checked_add(total, c);
    }
    TRIREME_CHECK(total == t.numel(), "all_to_all: counts add up to ", total, ", expected ",
                  t.numel());
    return std::vector<int64_t>(counts.begin(), counts.end());
  };
  return {.form = Form::kAllToAll,
          .out = out,
          .in = in,
          .out_counts = check_counts(out_counts, out),
          .in_counts = check_counts(in_counts, in)};
}

}  // namespace

void Communicator::all_to_all_v(const Tensor& out, std::span<const int64_t> out_counts,
                                const ConstTensor& in, std::span<const int64_t> in_counts) {
  run(state_, checked_all_to_all(*state_, out, out_counts, in, in_counts));
}

Work Communicator::all_to_all_v_async(const Tensor& out, std::span<const int64_t> out_counts,
                                      const ConstTensor& in, std::span<const int64_t> in_counts) {
  return start(state_, checked_all_to_all(*state_, out, out_counts, in, in_counts));
}

namespace {

void check_tag(int tag) {
  TRIREME_CHECK(tag >= 0 && tag <= Communicator::kMaxTag, "message tag ", tag, " is not in [0, ",
                Communicator::kMaxTag, "]");
}

CollectiveCall checked_send(const GroupState& group, const ConstTensor& data, int to, int tag) {
  check_operand("send", "data", data);
  check_rank(group, "send", to);
  check_tag(tag);
  return {.form = Form::kSend, .in = data, .to = to, .tag = tag};
}

CollectiveCall checked_recv(const GroupState& group, const Tensor& data, int from, int tag) {
  check_operand("recv", "data", data);
  check_rank(group, "recv", from);
  check_tag(tag);
  return {.form = Form::kRecv, .out = data, .from = from, .tag = tag};
}

CollectiveCall checked_send_recv(const GroupState& group, const ConstTensor& out, int to,
                                 const Tensor& in, int from, int tag) {
  check_operand("send_recv", "out", out);
  check_operand("send_recv", "in", in);
  check_same_device("send_recv", out, in);
  check_rank(group, "send_recv", to);
  check_rank(group, "send_recv", from);
  check_tag(tag);
  return {.form = Form::kSendRecv, .out = in, .in = out, .to = to, .from = from, .tag = tag};
}

}  // namespace

void Communicator::send(const ConstTensor& data, int to, int tag) {
  run(state_, checked_send(*state_, data, to, tag));
}

void Communicator::recv(const Tensor& data, int from, int tag) {
  run(state_, checked_recv(*state_, data, from, tag));
}

Work Communicator::post_send(const ConstTensor& data, int to, int tag) {
  const CollectiveCall call = checked_send(*state_, data, to, tag);
  TRIREME_CHECK(to != rank(), "posted send of rank ", to, " to itself");
  if (call.on_device()) return post_on_device(state_, call);
  // The cast is safe: the transport only reads the data of a send.
  return post_message(state_, CommKind::kSend, const_cast<void*>(data.raw()), data.bytes(), to,
                      tag);
}

Work Communicator::post_recv(const Tensor& data, int from, int tag) {
  const CollectiveCall call = checked_recv(*state_, data, from, tag);
  TRIREME_CHECK(from != rank(), "posted receive of rank ", from, " from itself");
  if (call.on_device()) return post_on_device(state_, call);
  return post_message(state_, CommKind::kRecv, data.raw(), data.bytes(), from, tag);
}

void Communicator::send_recv(const ConstTensor& out, int to, const Tensor& in, int from, int tag) {
  run(state_, checked_send_recv(*state_, out, to, in, from, tag));
}

Work Communicator::send_recv_async(const ConstTensor& out, int to, const Tensor& in, int from,
                                   int tag) {
  return start(state_, checked_send_recv(*state_, out, to, in, from, tag));
}

void Communicator::open_paths(std::span<const MessagePath> paths) {
  if (state_->rank_state->device) state_->rank_state->device->open_paths(state_, paths);
}

void Communicator::barrier() {
  TRIREME_RUN(Operation op(*state_, CommKind::kBarrier, 0);
              if (options().check_operations && op.size() > 1)
                  check_same_operation(op, DType::kU8, ReduceOp::kSum, 0);
              dissemination_barrier(op));
}

std::vector<std::string> Communicator::all_gather_strings(const std::string& mine) {
  std::vector<std::string> all;
  TRIREME_RUN(Operation op(*state_, CommKind::kControl, static_cast<int64_t>(mine.size()));
              all = gather_strings(op, mine));
  return all;
}

std::string Communicator::broadcast_string(const std::string& value, int root) {
  check_rank(*state_, "broadcast_string", root);
  return all_gather_strings(rank() == root ? value : std::string())[static_cast<size_t>(root)];
}

double Communicator::all_reduce_scalar(double value, ReduceOp op) {
  all_reduce(Tensor(&value, DType::kF64, {1}), op);
  return value;
}

int64_t Communicator::all_reduce_scalar(int64_t value, ReduceOp op) {
  all_reduce(Tensor(&value, DType::kI64, {1}), op);
  return value;
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const std::string& name) {
  struct SplitRequest {
    int64_t color, key, context;
  };
  RankState& rank_state = *state_->rank_state;
  const SplitRequest mine{color, key, rank_state.next_context};
  std::vector<SplitRequest> requests(static_cast<size_t>(size()));
  TRIREME_RUN(Operation op(*state_, CommKind::kControl, sizeof(SplitRequest));
              ring_all_gather(op, requests.data(), &mine, sizeof(SplitRequest)));
  // A number above all that any of these ranks uses already.
  int64_t context = 0;
  for (const SplitRequest& w : requests) context = std::max(context, w.context);
  constexpr int kContexts = Transport::kTagLimit / (2 * (kMaxTag + 1));
  TRIREME_CHECK(context < kContexts, "more than ", kContexts, " groups were made in this run");
  rank_state.next_context = static_cast<int>(context) + 1;
  if (color < 0) return nullptr;

  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r)
    if (requests[static_cast<size_t>(r)].color == color) chosen.push_back(r);
  std::ranges::stable_sort(chosen, {}, [&](int r) { return requests[static_cast<size_t>(r)].key; });
  auto group = std::make_shared<GroupState>();
  group->rank_state = state_->rank_state;
  group->name = name;
  group->context = static_cast<int>(context);
  for (int r : chosen) {
    if (r == rank()) group->rank = static_cast<int>(group->members.size());
    group->members.push_back(world_rank(r));
  }
  arrange_nodes(*group);
  auto made = std::make_unique<Communicator>(group);
  if (rank_state.device) rank_state.device->open(group);
  return made;
}

Traffic Communicator::traffic() const {
  Traffic copy;
  TRIREME_RUN(copy = state_->traffic);
  const std::lock_guard lock(state_->posted_mutex);
  copy += state_->posted_traffic;
  return copy;
}

void Communicator::reset_traffic() {
  TRIREME_RUN(state_->traffic = {});
  const std::lock_guard lock(state_->posted_mutex);
  state_->posted_traffic = {};
}

#undef TRIREME_RUN

void Communicator::abort(const std::string& reason) {
  RankState& rank_state = *state_->rank_state;
  rank_state.liveness.report_lost(reason);
  rank_state.transport->broadcast_loss();
}

void Communicator::check_alive() const {
  const OpInfo info{CommKind::kControl, &state_->name, rank(), size(), 0, false};
  state_->rank_state->liveness.check(info, -1, 0);
}

}  // namespace trireme
