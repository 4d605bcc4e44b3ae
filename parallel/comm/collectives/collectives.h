// Collective algorithms over point-to-point messages, on raw memory of n elements. Every rank of
// the operation's group calls with the same sizes. Traffic formulas: docs/design/communication.md.
#pragma once

#include "parallel/comm/collectives/operation.h"

namespace trireme {

// Elements [begin, end) of piece `index` when n elements are cut into `pieces` pieces of almost
// equal size.
struct Piece {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
Piece piece_of(int64_t n, int pieces, int index);

// In place over `ring`: group ranks in ring order, the caller at position `self`. float64, float32
// and integers: ring reduce-scatter, then ring all-gather (Patarasu & Yuan, "Bandwidth optimal
// all-reduce algorithms", 2009). 16-bit floats: each rank collects its piece from all others and
// adds in float32, rounding once; then the same all-gather. Both send exactly 2 (N - 1) n elements,
// summed over the ranks.
void ring_all_reduce(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n,
                     std::span<const int> ring, int self);

// All-reduce through shared memory (NodeWindow) inside each node; between nodes, one ring for each
// slice of the window. This and the window_ functions require that ensure_window() returned true.
void node_all_reduce(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n);

// In place over the pieces of piece_of(n, size, r), through the window of a group on one node.
// width: bytes per element. Returns false and does nothing if a window slot cannot hold an element
// for each rank.
bool window_reduce_scatter_pieces(Operation& op, DType dtype, ReduceOp reduce, void* data,
                                  int64_t n);
bool window_all_gather_pieces(Operation& op, int64_t width, void* data, int64_t n);

// out: size * bytes, every piece is overwritten; in: bytes (may be its own piece of out).
void ring_all_gather(Operation& op, void* out, const void* in, int64_t bytes);
// out (n) = piece `rank` of the reduction of the ranks' in (size * n); may be that piece of in.
void ring_reduce_scatter(Operation& op, DType dtype, ReduceOp reduce, void* out, const void* in,
                         int64_t n);
// In place over the pieces of piece_of(n, size, r), which differ by at most one element. Both send
// exactly (N - 1) n elements, summed over the ranks. After reduce_scatter the other ranks' pieces
// are undefined.
void ring_reduce_scatter_pieces(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n);
void ring_all_gather_pieces(Operation& op, int64_t width, void* data, int64_t n);
void tree_broadcast(Operation& op, void* data, int64_t bytes, int root);
// out_bytes, in_bytes: by group rank; the pieces follow one another.
void pairwise_all_to_all(Operation& op, std::byte* out, std::span<const int64_t> out_bytes,
                         const std::byte* in, std::span<const int64_t> in_bytes);
void dissemination_barrier(Operation& op);

// Strings of all ranks, by group rank; Error if one is longer than 64 MiB.
std::vector<std::string> gather_strings(Operation& op, const std::string& mine);

// Creates the group's node window on first use. Returns false on all ranks if some node cannot
// create one.
bool ensure_window(Operation& op);

// Debug check: the ranks exchange descriptions of the operation they are about to run. Throws Error
// naming the first rank whose operation differs from rank 0's.
void check_same_operation(Operation& op, DType dtype, ReduceOp reduce, int root);

}  // namespace trireme
