#include "parallel/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "parallel/comm/collectives.h"

namespace trireme {
namespace {

void check_operand(const char* op, const char* operand, const ConstTensor& t) {
  check_contiguous(op, operand, t);
  TRIREME_CHECK(t.numel() == 0 || t.raw() != nullptr, op, ": ", operand, " has no memory");
}

void check_reducible(const char* op, DType dtype) {
  const bool known = is_float(dtype) || dtype == DType::kI64 || dtype == DType::kI32;
  TRIREME_CHECK(known, op, " of dtype ", dtype);
}

// Checks that `whole` holds one `part` per rank.
void check_pieces(const char* op, const ConstTensor& whole, const ConstTensor& part, int size) {
  TRIREME_CHECK(whole.dtype() == part.dtype(), op, " of ", whole.dtype(), " and ", part.dtype());
  TRIREME_CHECK(whole.numel() == checked_mul(part.numel(), size), op, " over ", size,
                " ranks between ", whole.shape(), " and ", part.shape());
}

void check_rank(const GroupState& group, const char* op, int rank) {
  TRIREME_CHECK(rank >= 0 && rank < group.size(), op, ": rank ", rank, " of group \"", group.name,
                "\" with ", group.size(), " ranks");
}

void verify(Operation& op, DType dtype, ReduceOp reduce = ReduceOp::kSum, int root = 0) {
  if (op.group().rank_state->options.check_operations && op.size() > 1)
    check_same_operation(op, dtype, reduce, root);
}

bool uses_windows(Operation& op) {
  GroupState& group = op.group();
  const CommAlgorithm algorithm = group.rank_state->options.algorithm;
  if (algorithm == CommAlgorithm::kRing) return false;
  const bool alone = std::ranges::all_of(group.nodes, [](const auto& n) { return n.size() == 1; });
  if (alone) return false;
  if (ensure_window(op)) return true;
  if (algorithm == CommAlgorithm::kShm)
    fail_input("comm.algorithm \"shm\": the ranks of a node cannot share memory (",
               group.window_problem, "); use \"auto\" or \"ring\"");
  return false;
}

// Whether n elements pass through the window of a group that lies on one node.
bool uses_one_window(Operation& op, int64_t n) {
  return op.group().nodes.size() == 1 && op.size() > 1 && n > 0 && uses_windows(op);
}

void do_all_reduce(GroupState& group, const Tensor& data, ReduceOp reduce) {
  Operation op(group, CommKind::kAllReduce, data.bytes());
  verify(op, data.dtype(), reduce);
  if (op.size() == 1 || data.numel() == 0) return;
  if (uses_windows(op)) return node_all_reduce(op, data.dtype(), reduce, data.raw(), data.numel());
  std::vector<int> ring(group.members.size());
  std::iota(ring.begin(), ring.end(), 0);
  ring_all_reduce(op, data.dtype(), reduce, data.raw(), data.numel(), ring, group.rank);
}

void do_all_gather(GroupState& group, const Tensor& out, const ConstTensor& in) {
  Operation op(group, CommKind::kAllGather, in.bytes());
  verify(op, in.dtype());
  ring_all_gather(op, out.raw(), in.raw(), in.bytes());
}

void do_reduce_scatter(GroupState& group, const Tensor& out, const ConstTensor& in, ReduceOp op) {
  Operation operation(group, CommKind::kReduceScatter, in.bytes());
  verify(operation, in.dtype(), op);
  ring_reduce_scatter(operation, in.dtype(), op, out.raw(), in.raw(), out.numel());
}

void do_all_gather_v(GroupState& group, const Tensor& data) {
  Operation op(group, CommKind::kAllGather, data.bytes());
  verify(op, data.dtype());
  const int64_t width = dtype_size(data.dtype()), n = data.numel();
  if (uses_one_window(op, n) && window_all_gather_pieces(op, width, data.raw(), n)) return;
  ring_all_gather_pieces(op, width, data.raw(), n);
}

void do_reduce_scatter_v(GroupState& group, const Tensor& data, ReduceOp reduce) {
  Operation op(group, CommKind::kReduceScatter, data.bytes());
  verify(op, data.dtype(), reduce);
  const int64_t n = data.numel();
  if (uses_one_window(op, n) &&
      window_reduce_scatter_pieces(op, data.dtype(), reduce, data.raw(), n))
    return;
  ring_reduce_scatter_pieces(op, data.dtype(), reduce, data.raw(), n);
}

void do_broadcast(GroupState& group, const Tensor& data, int root) {
  Operation op(group, CommKind::kBroadcast, data.bytes());
  verify(op, data.dtype(), ReduceOp::kSum, root);
  tree_broadcast(op, data.raw(), data.bytes(), root);
}

}  // namespace

CommAlgorithm parse_comm_algorithm(const std::string& name) {
  if (name == "auto") return CommAlgorithm::kAuto;
  if (name == "ring") return CommAlgorithm::kRing;
  if (name == "shm") return CommAlgorithm::kShm;
  fail_input("comm.algorithm \"", name, "\" is not one of auto, ring, shm");
}

// Started operations point to the group: they must end before it does.
Communicator::~Communicator() {
  state_->rank_state->worker.run([] {});
}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size(); }
const std::string& Communicator::name() const { return state_->name; }
int Communicator::world_rank(int rank) const {
  check_rank(*state_, "world_rank", rank);
  return state_->members[static_cast<size_t>(rank)];
}
int Communicator::nodes() const { return static_cast<int>(state_->nodes.size()); }
const CommOptions& Communicator::options() const { return state_->rank_state->options; }

// Every method checks its operands in the calling thread and hands the rest to the worker.
#define TRIREME_RUN(...) state_->rank_state->worker.run([&] { __VA_ARGS__; })
#define TRIREME_START(...) \
  state_->rank_state->worker.start([=, state = state_.get()] { __VA_ARGS__; })

void Communicator::all_reduce(const Tensor& data, ReduceOp op) {
  check_operand("all_reduce", "data", data);
  check_reducible("all_reduce", data.dtype());
  TRIREME_RUN(do_all_reduce(*state_, data, op));
}

Work Communicator::all_reduce_async(const Tensor& data, ReduceOp op) {
  check_operand("all_reduce", "data", data);
  check_reducible("all_reduce", data.dtype());
  return TRIREME_START(do_all_reduce(*state, data, op));
}

void Communicator::all_gather(const Tensor& out, const ConstTensor& in) {
  check_operand("all_gather", "out", out);
  check_operand("all_gather", "in", in);
  check_pieces("all_gather", out, in, size());
  TRIREME_RUN(do_all_gather(*state_, out, in));
}

Work Communicator::all_gather_async(const Tensor& out, const ConstTensor& in) {
  check_operand("all_gather", "out", out);
  check_operand("all_gather", "in", in);
  check_pieces("all_gather", out, in, size());
  return TRIREME_START(do_all_gather(*state, out, in));
}

void Communicator::reduce_scatter(const Tensor& out, const ConstTensor& in, ReduceOp op) {
  check_operand("reduce_scatter", "out", out);
  check_operand("reduce_scatter", "in", in);
  check_reducible("reduce_scatter", in.dtype());
  check_pieces("reduce_scatter", in, out, size());
  TRIREME_RUN(do_reduce_scatter(*state_, out, in, op));
}

Work Communicator::reduce_scatter_async(const Tensor& out, const ConstTensor& in, ReduceOp op) {
  check_operand("reduce_scatter", "out", out);
  check_operand("reduce_scatter", "in", in);
  check_reducible("reduce_scatter", in.dtype());
  check_pieces("reduce_scatter", in, out, size());
  return TRIREME_START(do_reduce_scatter(*state, out, in, op));
}

void Communicator::all_gather_v(const Tensor& data) {
  check_operand("all_gather_v", "data", data);
  TRIREME_RUN(do_all_gather_v(*state_, data));
}

Work Communicator::all_gather_v_async(const Tensor& data) {
  check_operand("all_gather_v", "data", data);
  return TRIREME_START(do_all_gather_v(*state, data));
}

void Communicator::reduce_scatter_v(const Tensor& data, ReduceOp op) {
  check_operand("reduce_scatter_v", "data", data);
  check_reducible("reduce_scatter_v", data.dtype());
  TRIREME_RUN(do_reduce_scatter_v(*state_, data, op));
}

Work Communicator::reduce_scatter_v_async(const Tensor& data, ReduceOp op) {
  check_operand("reduce_scatter_v", "data", data);
  check_reducible("reduce_scatter_v", data.dtype());
  return TRIREME_START(do_reduce_scatter_v(*state, data, op));
}

void Communicator::broadcast(const Tensor& data, int root) {
  check_operand("broadcast", "data", data);
  check_rank(*state_, "broadcast", root);
  TRIREME_RUN(do_broadcast(*state_, data, root));
}

Work Communicator::broadcast_async(const Tensor& data, int root) {
  check_operand("broadcast", "data", data);
  check_rank(*state_, "broadcast", root);
  return TRIREME_START(do_broadcast(*state, data, root));
}

void Communicator::all_to_all(const Tensor& out, const ConstTensor& in) {
  TRIREME_CHECK(in.numel() % size() == 0, "all_to_all of ", in.shape(), " over ", size(), " ranks");
  const std::vector<int64_t> counts(static_cast<size_t>(size()), in.numel() / size());
  all_to_all_v(out, counts, in, counts);
}

void Communicator::all_to_all_v(const Tensor& out, std::span<const int64_t> out_counts,
                                const ConstTensor& in, std::span<const int64_t> in_counts) {
  check_operand("all_to_all", "out", out);
  check_operand("all_to_all", "in", in);
  TRIREME_CHECK(out.dtype() == in.dtype(), "all_to_all of ", out.dtype(), " and ", in.dtype());
  const auto bytes_of = [&](std::span<const int64_t> counts, const ConstTensor& t) {
    TRIREME_CHECK(counts.size() == state_->members.size(), "all_to_all with ", counts.size(),
                  " counts for ", size(), " ranks");
    std::vector<int64_t> bytes;
    int64_t total = 0;
    for (int64_t c : counts) {
      TRIREME_CHECK(c >= 0, "all_to_all of ", c, " elements");
      bytes.push_back(checked_mul(c, dtype_size(t.dtype())));
      total = checked_add(total, c);
    }
    TRIREME_CHECK(total == t.numel(), "all_to_all: counts add up to ", total, ", not ", t.numel());
    return bytes;
  };
  const std::vector<int64_t> out_bytes = bytes_of(out_counts, out);
  const std::vector<int64_t> in_bytes = bytes_of(in_counts, in);
  TRIREME_RUN(Operation op(*state_, CommKind::kAllToAll, in.bytes()); verify(op, in.dtype());
              pairwise_all_to_all(op, static_cast<std::byte*>(out.raw()), out_bytes,
                                  static_cast<const std::byte*>(in.raw()), in_bytes));
}

namespace {

void check_tag(int tag) {
  TRIREME_CHECK(tag >= 0 && tag <= Communicator::kMaxTag, "message tag ", tag, " is not in [0, ",
                Communicator::kMaxTag, "]");
}

}  // namespace

void Communicator::send(const ConstTensor& data, int to, int tag) {
  check_operand("send", "data", data);
  check_rank(*state_, "send", to);
  check_tag(tag);
  const SendPart part{to, tag, data.raw(), data.bytes()};
  TRIREME_RUN(Operation op(*state_, CommKind::kSend, part.bytes);
              op.exchange({&part, 1}, {}, true));
}

void Communicator::recv(const Tensor& data, int from, int tag) {
  check_operand("recv", "data", data);
  check_rank(*state_, "recv", from);
  check_tag(tag);
  const RecvPart part{from, tag, data.raw(), data.bytes()};
  TRIREME_RUN(Operation op(*state_, CommKind::kRecv, part.bytes);
              op.exchange({}, {&part, 1}, true));
}

Work Communicator::post_send(const ConstTensor& data, int to, int tag) {
  check_operand("send", "data", data);
  check_rank(*state_, "send", to);
  check_tag(tag);
  TRIREME_CHECK(to != rank(), "posted send of rank ", to, " to itself");
  // The transport only reads what it sends.
  return post_message(state_, CommKind::kSend, const_cast<void*>(data.raw()), data.bytes(), to,
                      tag);
}

Work Communicator::post_recv(const Tensor& data, int from, int tag) {
  check_operand("recv", "data", data);
  check_rank(*state_, "recv", from);
  check_tag(tag);
  TRIREME_CHECK(from != rank(), "posted receive of rank ", from, " from itself");
  return post_message(state_, CommKind::kRecv, data.raw(), data.bytes(), from, tag);
}

namespace {

void do_send_recv(GroupState& group, const SendPart& send, const RecvPart& recv) {
  Operation op(group, CommKind::kSend, send.bytes);
  op.exchange({&send, 1}, {&recv, 1}, true);
}

void check_send_recv(const GroupState& group, const ConstTensor& out, int to, const Tensor& in,
                     int from, int tag) {
  check_operand("send_recv", "out", out);
  check_operand("send_recv", "in", in);
  check_rank(group, "send_recv", to);
  check_rank(group, "send_recv", from);
  check_tag(tag);
}

}  // namespace

void Communicator::send_recv(const ConstTensor& out, int to, const Tensor& in, int from, int tag) {
  check_send_recv(*state_, out, to, in, from, tag);
  const SendPart send{to, tag, out.raw(), out.bytes()};
  const RecvPart recv{from, tag, in.raw(), in.bytes()};
  TRIREME_RUN(do_send_recv(*state_, send, recv));
}

Work Communicator::send_recv_async(const ConstTensor& out, int to, const Tensor& in, int from,
                                   int tag) {
  check_send_recv(*state_, out, to, in, from, tag);
  const SendPart send{to, tag, out.raw(), out.bytes()};
  const RecvPart recv{from, tag, in.raw(), in.bytes()};
  return TRIREME_START(do_send_recv(*state, send, recv));
}

void Communicator::barrier() {
  TRIREME_RUN(Operation op(*state_, CommKind::kBarrier, 0); verify(op, DType::kU8);
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
  struct Wish {
    int64_t color, key, context;
  };
  RankState& rank_state = *state_->rank_state;
  const Wish mine{color, key, rank_state.next_context};
  std::vector<Wish> wishes(static_cast<size_t>(size()));
  TRIREME_RUN(Operation op(*state_, CommKind::kControl, sizeof(Wish));
              ring_all_gather(op, wishes.data(), &mine, sizeof(Wish)));
  // Above every number that any of these ranks uses already.
  int64_t context = 0;
  for (const Wish& w : wishes) context = std::max(context, w.context);
  constexpr int kContexts = Transport::kTagLimit / (2 * (kMaxTag + 1));
  TRIREME_CHECK(context < kContexts, "more than ", kContexts, " groups were made in this run");
  rank_state.next_context = static_cast<int>(context) + 1;
  if (color < 0) return nullptr;

  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r)
    if (wishes[static_cast<size_t>(r)].color == color) chosen.push_back(r);
  std::ranges::stable_sort(chosen, {}, [&](int r) { return wishes[static_cast<size_t>(r)].key; });
  auto group = std::make_shared<GroupState>();
  group->rank_state = state_->rank_state;
  group->name = name;
  group->context = static_cast<int>(context);
  for (int r : chosen) {
    if (r == rank()) group->rank = static_cast<int>(group->members.size());
    group->members.push_back(world_rank(r));
  }
  arrange_nodes(*group);
  return std::make_unique<Communicator>(std::move(group));
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
#undef TRIREME_START

void Communicator::abort(const std::string& reason) {
  RankState& rank_state = *state_->rank_state;
  rank_state.liveness.report_lost(reason);
  rank_state.transport->tell_lost();
}

void Communicator::check_alive() const {
  const OpInfo info{CommKind::kControl, &state_->name, rank(), size(), 0, false};
  state_->rank_state->liveness.check(info, -1, 0);
}

}  // namespace trireme
