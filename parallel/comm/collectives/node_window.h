// Node-local window: shared memory for the all-reduce, reduce-scatter and all-gather of the ranks
// of one node.
//
// For each of two buffers the window holds one slot per rank and one result slot. A tensor passes
// through in pieces; piece s uses buffer s % 2:
//   1. every rank copies its piece into its slot, except the slice it will reduce itself
//   2. rank i reduces slice i of all ranks' pieces, in rank order, into its own tensor (with
//      several nodes, the slice then passes around a ring of the nodes' ranks i) and into the
//      result slot
//   3. every rank copies the others' slices out of the result slot
// An all-reduce of at most 4096 bytes on one node is shorter: every rank copies all of its tensor
// into its slot and reduces all of the ranks' slots itself.
// In reduce-scatter and all-gather each rank owns one piece of the tensor, and one part of each
// rank's piece passes through at a time. Reduce-scatter: step 1 copies the other ranks' parts in,
// step 2 reduces the rank's own part into its tensor. All-gather: step 1 copies the rank's own part
// in, step 2 copies the others' parts out. Neither has a step 3.
// Each rank announces steps 1 and 2 in its own counters, which no other rank writes. While the
// others still reduce piece s, a rank copies piece s + 1 into the other buffer.
#pragma once

#include <functional>

#include "engine/ops/rows/reduce.h"
#include "parallel/comm/liveness/liveness.h"

namespace trireme {

class NodeWindow {
 public:
  // Size of the shared memory for `ranks` ranks. slot_bytes: a positive multiple of 64.
  static int64_t required_bytes(int ranks, int64_t slot_bytes);

  // world_ranks: in slot order, for messages. spin: every rank has a free core, so that waiting may
  // begin with a short spin; otherwise waiters sleep at once.
  NodeWindow(SharedMemory memory, std::vector<int> world_ranks, int self, int64_t slot_bytes,
             bool spin);

  // Called by each rank i < slices with its slice of every piece, unless the slice is empty.
  using BetweenNodes = std::function<void(void* slice, int64_t n)>;

  // In place. The first `slices` ranks reduce; with between_nodes (not empty: several nodes),
  // `slices` must be the same on all nodes. Returns the bytes that this rank copied into the
  // window.
  int64_t all_reduce(DType dtype, ReduceOp reduce, void* data, int64_t n, int slices,
                     const BetweenNodes& between_nodes, const OpInfo& op, Liveness& liveness);

  // In place over the pieces of piece_of(n, ranks, r), on one node. reduce_scatter: this rank's
  // piece becomes the reduction in rank order; the other pieces keep their contents. all_gather:
  // every rank receives every piece. width: bytes per element. Both require fits(width) and return
  // the bytes that this rank copied into the window.
  // True if a slot can hold an element for each rank.
  bool fits(int64_t width) const { return part_elements(width) > 0; }
  int64_t reduce_scatter(DType dtype, ReduceOp reduce, void* data, int64_t n, const OpInfo& op,
                         Liveness& liveness);
  int64_t all_gather(int64_t width, void* data, int64_t n, const OpInfo& op, Liveness& liveness);

 private:
  struct Counter;
  struct Flags;
  struct Call;  // the operation in progress

  Flags& flags(int rank) const;
  std::byte* slot(uint32_t step, int rank) const;  // rank == ranks(): the result slot
  int ranks() const { return static_cast<int>(world_ranks_.size()); }
  void announce(Counter& counter, uint32_t step);
  void wait_for(const Counter& counter, uint32_t step, int rank, const Call& call);
  void wait_all_arrived(uint32_t step, const Call& call);
  void wait_all_reduced(uint32_t step, const Call& call);
  void reduce_small(Call& call);
  int64_t part_elements(int64_t width) const;  // of each rank's piece per slot
  template <class CopyIn, class Work>
  void run_parts(Call& call, int64_t steps, const CopyIn& copy, const Work& work);
  void copy_in(Call& call, uint32_t step, int64_t begin, int64_t n);
  void copy_out(Call& call, uint32_t step, int64_t begin, int64_t n);
  void reduce_slice(Call& call, uint32_t step, int64_t begin, int64_t n);

  SharedMemory memory_;
  std::vector<int> world_ranks_;
  int self_;
  int64_t slot_bytes_;
  bool spin_;
  uint32_t step_ = 0;                // pieces so far; wraps around
  std::vector<const void*> inputs_;  // one per rank, kept between calls
};

}  // namespace trireme
