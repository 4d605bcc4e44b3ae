// The collective algorithms over point-to-point messages. Raw memory of n elements; every rank of
// the operation's group calls with the same sizes. Traffic formulas: docs/design/communication.md.
#pragma once

#include "parallel/comm/collectives/operation.h"

namespace trireme {

// Elements [begin, end) of piece `index` when n elements are cut into `pieces` as equal as
// possible.
struct Piece {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
Piece piece_of(int64_t n, int pieces, int index);

// In place over `ring`, group ranks in ring order, of which the caller is number `self`.
// float64, float32 and integers: reduce-scatter around the ring, then all-gather around it
// (Patarasu & Yuan, "Bandwidth optimal all-reduce algorithms", 2009). 16-bit floats: each rank
// collects its piece from all others and adds in float32, rounding once; then the same all-gather.
// Both send exactly 2 (N - 1) n elements, summed over the ranks.
void ring_all_reduce(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n,
                     std::span<const int> ring, int self);

// Window inside each node, a ring per window slice between nodes.
void node_all_reduce(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n);

// The two below over the pieces of piece_of(n, size, r), through the window of a group on one node.
// false:
// its slots do not hold an element for each rank, nothing is done.
bool window_reduce_scatter_pieces(Operation& op, DType dtype, ReduceOp reduce, void* data,
                                  int64_t n);
bool window_all_gather_pieces(Operation& op, int64_t width, void* data, int64_t n);

// out: size * bytes, piece r already holds nothing; in: bytes (may be its place in out).
void ring_all_gather(Operation& op, void* out, const void* in, int64_t bytes);
void ring_reduce_scatter(Operation& op, DType dtype, ReduceOp reduce, void* out, const void* in,
                         int64_t n);
// In place over the pieces of piece_of(n, size, r), which differ by one element at most. Both send
// exactly (N - 1) n elements, summed over the ranks. reduce_scatter leaves partial sums in the
// other ranks' pieces.
void ring_reduce_scatter_pieces(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n);
void ring_all_gather_pieces(Operation& op, int64_t width, void* data, int64_t n);
void tree_broadcast(Operation& op, void* data, int64_t bytes, int root);
void pairwise_all_to_all(Operation& op, std::byte* out, std::span<const int64_t> out_bytes,
                         const std::byte* in, std::span<const int64_t> in_bytes);
void dissemination_barrier(Operation& op);

std::vector<std::string> gather_strings(Operation& op, const std::string& mine);

// Creates the group's node window on first use; false (on all ranks) where some node cannot.
bool ensure_window(Operation& op);

// Debug mode: every rank tells every other what it is about to do; throws Error naming the first
// rank that does something else than rank 0.
void check_same_operation(Operation& op, DType dtype, ReduceOp reduce, int root);

}  // namespace trireme
