// The micro-batches of a step where the rank computes.
#pragma once

#include <vector>

#include "training/data/batch_source.h"
#include "transformer/tokens.h"

namespace trireme {

// On the CPU they are used where they lie. On a GPU a call of place() copies their arrays into one block of
// memory there, at once for the caller; the block is taken by the first call and serves all that need no
// more.
class PlacedBatches {
 public:
  // sequence_length: of each sample.
  PlacedBatches(Ctx& ctx, int64_t sequence_length) : ctx_(ctx), sequence_length_(sequence_length) {}
  // The batches must outlive the use of their tokens. A planning run places nothing.
  void place(const std::vector<MicroBatch>& batches);
  const MicroBatch& batch(int i) const { return (*batches_)[static_cast<size_t>(i)]; }
  Tokens tokens(int i) const;

 private:
  Ctx& ctx_;
  int64_t sequence_length_;
  const std::vector<MicroBatch>* batches_ = nullptr;
  Buffer block_;
  std::vector<Tokens> placed_;  // empty: used where they lie
};

}  // namespace trireme
