// Node-local window: shared memory through which the ranks of one node reduce.
//
// For each of two buffers the window holds one slot per rank and one result slot. A tensor passes
// through in pieces; piece s uses buffer s % 2:
//   1. every rank copies its piece into its slot, except the slice it will reduce itself
//   2. rank i reduces slice i of all ranks' pieces, in rank order, into its own tensor (with several
//      nodes, the slice then goes around a ring of the nodes' ranks i) and into the result slot
//   3. every rank copies the others' slices out of the result slot
// A rank announces 1 and 2 in a counter of its own; nobody else writes to it. While the others still
// reduce piece s, a rank copies piece s + 1 into the other buffer.
#pragma once

#include <functional>

#include "engine/ops/reduce.h"
#include "parallel/comm/liveness.h"

namespace trireme {

class NodeWindow {
 public:
  static int64_t required_bytes(int ranks, int64_t slot_bytes);

  // world_ranks: of the ranks in slot order, for messages. spin: a core is free for every rank, so
  // that waiting may begin with a short spin; otherwise waiters sleep at once.
  NodeWindow(SharedMemory memory, std::vector<int> world_ranks, int self, int64_t slot_bytes,
             bool spin);

  // Called by rank i < slices with its slice of every piece; may be empty.
  using BetweenNodes = std::function<void(void* slice, int64_t n)>;

  // In place. The first `slices` ranks reduce; with between_nodes, `slices` must be the same on all
  // nodes. Returns the bytes copied into the window by this rank.
  int64_t all_reduce(DType dtype, ReduceOp reduce, void* data, int64_t n, int slices,
                     const BetweenNodes& between_nodes, const OpInfo& op, Liveness& liveness);

 private:
  struct Counter;
  struct Flags;
  struct Call;  // the operation under way

  Flags& flags(int rank) const;
  std::byte* slot(uint32_t step, int rank) const;  // rank == ranks(): the result slot
  int ranks() const { return static_cast<int>(world_ranks_.size()); }
  void announce(Counter& counter, uint32_t step);
  void wait_for(const Counter& counter, uint32_t step, int rank, const Call& call);
  void wait_all_arrived(uint32_t step, const Call& call);
  void wait_all_reduced(uint32_t step, const Call& call);
  void reduce_small(Call& call);
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
