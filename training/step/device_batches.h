// Micro-batches of a step in the memory of the compute device.
#pragma once

#include <vector>

#include "training/data/batch_source.h"
#include "transformer/pass/tokens.h"

namespace trireme {

// On the CPU they are used in place. On a GPU place() copies their arrays into one block of device
// memory; the host data may be changed on return. The block is allocated by the first call and
// reused by all that need no more.
class DeviceBatches {
 public:
  // sequence_length: of each sample.
  DeviceBatches(Ctx& ctx, int64_t sequence_length) : ctx_(ctx), sequence_length_(sequence_length) {}
  // Bytes on a GPU for `micro_batches` micro-batches of `tokens` tokens, including the fixed place.
  static int64_t bytes(int64_t tokens, int64_t micro_batches);
  // The batches must outlive the use of their tokens. A planning run places nothing.
  void place(const std::vector<MicroBatch>& batches);
  const MicroBatch& batch(int i) const { return (*batches_)[static_cast<size_t>(i)]; }
  Tokens tokens(int i) const;
  // GPU only: fixed place, the same for all micro-batches of one size, from which recorded work
  // reads tokens. fix() copies micro-batch i there, in the order of the main stream.
  const void* fixed_place() const { return block_.data(); }
  Tokens fixed_tokens(int i) const;
  void fix(int i) const;

 private:
  Ctx& ctx_;
  int64_t sequence_length_;
  const std::vector<MicroBatch>* batches_ = nullptr;
  Buffer block_;
  std::vector<Tokens> placed_;  // empty: used in place
  int64_t largest_ = 0;  // bytes of the largest micro-batch; the block begins with the fixed place
};

}  // namespace trireme
