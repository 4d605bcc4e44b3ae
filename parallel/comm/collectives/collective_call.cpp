#include "parallel/comm/collectives/collective_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "parallel/comm/collectives/collectives.h"

namespace trireme {
namespace {

using Form = CollectiveCall::Form;

void verify(Operation& op, const CollectiveCall& call) {
  if (!op.group().rank_state->options.check_operations || op.size() == 1) return;
  const bool rooted = call.form == Form::kBroadcast;
  check_same_operation(op, call.payload().dtype(), call.reduce, rooted ? call.from : 0);
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

// True if n elements pass through the shared window of a group that is on one node.
bool uses_one_window(Operation& op, int64_t n) {
  return op.group().nodes.size() == 1 && op.size() > 1 && n > 0 && uses_windows(op);
}

void all_reduce(Operation& op, const CollectiveCall& call) {
  const Tensor& data = call.out;
  if (op.size() == 1 || data.numel() == 0) return;
  if (uses_windows(op))
    return node_all_reduce(op, data.dtype(), call.reduce, data.raw(), data.numel());
  std::vector<int> ring(op.group().members.size());
  std::iota(ring.begin(), ring.end(), 0);
  ring_all_reduce(op, data.dtype(), call.reduce, data.raw(), data.numel(), ring, op.rank());
}

void all_gather_pieces(Operation& op, const Tensor& data) {
  const int64_t width = dtype_size(data.dtype()), n = data.numel();
  if (uses_one_window(op, n) && window_all_gather_pieces(op, width, data.raw(), n)) return;
  ring_all_gather_pieces(op, width, data.raw(), n);
}

void reduce_scatter_pieces(Operation& op, const Tensor& data, ReduceOp reduce) {
  const int64_t n = data.numel();
  if (uses_one_window(op, n) &&
      window_reduce_scatter_pieces(op, data.dtype(), reduce, data.raw(), n))
    return;
  ring_reduce_scatter_pieces(op, data.dtype(), reduce, data.raw(), n);
}

std::vector<int64_t> bytes_of(const std::vector<int64_t>& counts, DType dtype) {
  std::vector<int64_t> bytes;
  bytes.reserve(counts.size());
  for (const int64_t c : counts) bytes.push_back(checked_mul(c, dtype_size(dtype)));
  return bytes;
}

void all_to_all(Operation& op, const CollectiveCall& call) {
  pairwise_all_to_all(
      op, static_cast<std::byte*>(call.out.raw()), bytes_of(call.out_counts, call.out.dtype()),
      static_cast<const std::byte*>(call.in.raw()), bytes_of(call.in_counts, call.in.dtype()));
}

void exchange(Operation& op, const CollectiveCall& call) {
  const SendPart send{call.to, call.tag, call.in.raw(), call.in.bytes()};
  const RecvPart recv{call.from, call.tag, call.out.raw(), call.out.bytes()};
  const size_t sends = call.form == Form::kRecv ? 0 : 1, recvs = call.form == Form::kSend ? 0 : 1;
  op.exchange({&send, sends}, {&recv, recvs}, true);
}

// Bytes of `data` without the piece of group rank `left_out`.
int64_t pieces_without(const ConstTensor& data, int size, int left_out) {
  const Piece piece = piece_of(data.numel(), size, left_out % size);
  return (data.numel() - piece.size()) * dtype_size(data.dtype());
}

// Children of a rank in tree_broadcast()'s tree (collectives.cpp).
int tree_children(int relative, int size) {
  int children = 0;
  for (int reach = 1; reach < size; reach *= 2)
    if (relative < reach && relative + reach < size) ++children;
  return children;
}

}  // namespace

CommKind CollectiveCall::kind() const {
  switch (form) {
    case Form::kAllReduce: return CommKind::kAllReduce;
    case Form::kAllGather:
    case Form::kAllGatherPieces: return CommKind::kAllGather;
    case Form::kReduceScatter:
    case Form::kReduceScatterPieces: return CommKind::kReduceScatter;
    case Form::kBroadcast: return CommKind::kBroadcast;
    case Form::kAllToAll: return CommKind::kAllToAll;
    case Form::kRecv: return CommKind::kRecv;
    case Form::kSend:
    case Form::kSendRecv: return CommKind::kSend;
  }
  TRIREME_UNREACHABLE("collective call ", static_cast<int>(form));
}

const ConstTensor& CollectiveCall::payload() const {
  const bool in_counts_here = form == Form::kAllGather || form == Form::kReduceScatter ||
                              form == Form::kAllToAll || form == Form::kSend ||
                              form == Form::kSendRecv;
  return in_counts_here ? in : out;
}

void run_on_host(GroupState& group, const CollectiveCall& call) {
  Operation op(group, call.kind(), call.payload().bytes());
  const bool message =
      call.form == Form::kSend || call.form == Form::kRecv || call.form == Form::kSendRecv;
  if (message) return exchange(op, call);
  verify(op, call);
  const Tensor& out = call.out;
  switch (call.form) {
    case Form::kAllReduce: return all_reduce(op, call);
    case Form::kAllGather: return ring_all_gather(op, out.raw(), call.in.raw(), call.in.bytes());
    case Form::kReduceScatter:
      return ring_reduce_scatter(op, out.dtype(), call.reduce, out.raw(), call.in.raw(),
                                 out.numel());
    case Form::kAllGatherPieces: return all_gather_pieces(op, out);
    case Form::kReduceScatterPieces: return reduce_scatter_pieces(op, out, call.reduce);
    case Form::kBroadcast: return tree_broadcast(op, out.raw(), out.bytes(), call.from);
    default: return all_to_all(op, call);
  }
}

int64_t ring_bytes(const CollectiveCall& call, int rank, int size) {
  switch (call.form) {
    // The reduce-scatter never sends the piece that ends at the next rank; the all-gather never
    // sends the piece after it.
    case Form::kAllReduce:
      return size == 1 ? 0
                       : pieces_without(call.out, size, rank + 1) +
                             pieces_without(call.out, size, rank + 2);
    case Form::kAllGather: return (size - 1) * call.in.bytes();
    case Form::kReduceScatter: return (size - 1) * call.out.bytes();
    case Form::kAllGatherPieces: return pieces_without(call.out, size, rank + 1);
    case Form::kReduceScatterPieces: return pieces_without(call.out, size, rank);
    case Form::kBroadcast:
      return tree_children((rank - call.from + size) % size, size) * call.out.bytes();
    case Form::kAllToAll:
      return call.in.bytes() -
             call.in_counts[static_cast<size_t>(rank)] * dtype_size(call.in.dtype());
    case Form::kSend:
    case Form::kSendRecv: return call.in.bytes();
    case Form::kRecv: return 0;
  }
  TRIREME_UNREACHABLE("collective call ", static_cast<int>(call.form));
}

}  // namespace trireme
