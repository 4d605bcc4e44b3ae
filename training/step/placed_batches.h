// The micro-batches of a step where the rank computes.
#pragma once

#include <vector>

#include "training/data/batch_source.h"
#include "transformer/pass/tokens.h"

namespace trireme {

// On the CPU they are used where they lie. On a GPU a call of place() copies their arrays into one
// block of memory there, at once for the caller; the block is taken by the first call and serves
// all that need no more.
class PlacedBatches {
 public:
  // sequence_length: of each sample.
  PlacedBatches(Ctx& ctx, int64_t sequence_length) : ctx_(ctx), sequence_length_(sequence_length) {}
  // Bytes on a GPU of so many micro-batches of so many tokens, the fixed place included.
  static int64_t bytes(int64_t tokens, int64_t micro_batches);
  // The batches must outlive the use of their tokens. A planning run places nothing.
  void place(const std::vector<MicroBatch>& batches);
  const MicroBatch& batch(int i) const { return (*batches_)[static_cast<size_t>(i)]; }
  Tokens tokens(int i) const;
  // On a GPU: a place that is the same for all micro-batches of one size, where recorded work finds
  // them. fix() copies micro-batch i there, in the order of the main stream.
  const void* fixed_place() const { return block_.data(); }
  Tokens fixed_tokens(int i) const;
  void fix(int i) const;

 private:
  Ctx& ctx_;
  int64_t sequence_length_;
  const std::vector<MicroBatch>* batches_ = nullptr;
  Buffer block_;
  std::vector<Tokens> placed_;  // empty: used where they lie
  int64_t largest_ = 0;         // bytes of a micro-batch; the block begins with the fixed place
};

}  // namespace trireme
