// Micro-batches of one step, in the memory of the compute device.
#pragma once

#include <vector>

#include "training/data/batch_source.h"
#include "transformer/pass/tokens.h"

namespace trireme {

// On the CPU the micro-batches are used in place. On a GPU place() copies their arrays to one block
// of device memory, which is allocated by the first call and grows if a later one needs more.
class DeviceBatches {
 public:
  // sequence_length: tokens of a sample. chunk: ModelConfig::attention_chunk; 0: none.
  DeviceBatches(Ctx& ctx, int64_t sequence_length, int64_t chunk)
      : ctx_(ctx), sequence_length_(sequence_length), chunk_(chunk) {}
  // Bytes of GPU memory for `micro_batches` micro-batches of `tokens` tokens each, including the
  // fixed buffer.
  static int64_t bytes(int64_t tokens, int64_t micro_batches, int64_t chunk);
  // Sets the micro-batches of the step. `batches` must outlive the step; on a GPU its token arrays
  // may be overwritten on return. A planning run copies nothing.
  void place(const std::vector<MicroBatch>& batches);
  const MicroBatch& batch(int i) const { return (*batches_)[static_cast<size_t>(i)]; }
  Tokens tokens(int i) const;
  // GPU only: fixed buffer at the start of the block. A CUDA graph reads its tokens from there,
  // whichever micro-batch it is replayed for. fix() queues the copy of micro-batch i to it on the
  // main stream; fixed_tokens() are views of the buffer with the shapes of micro-batch i.
  const void* fixed_buffer() const { return block_.data(); }
  Tokens fixed_tokens(int i) const;
  void fix(int i) const;

 private:
  Tokens host_tokens(int i) const;
  Ctx& ctx_;
  int64_t sequence_length_, chunk_;
  const std::vector<MicroBatch>* batches_ = nullptr;
  std::vector<std::vector<int32_t>> chunks_;  // of each micro-batch: chunk_offsets()
  Buffer block_;
  std::vector<Tokens> placed_;  // empty: used in place
  int64_t largest_ = 0;         // bytes of the largest micro-batch: size of the fixed buffer
};

}  // namespace trireme
