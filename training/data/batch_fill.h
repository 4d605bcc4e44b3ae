// Conversion of token sequences to a MicroBatch: targets, positions, document boundaries, masks.
#pragma once

#include <cstdint>
#include <vector>

#include "training/data/batch_source.h"

namespace trireme {

struct BatchFillOptions {
  int64_t sequence_length = 0;
  int64_t vocab_size = 0;
  int32_t eod = -1;
  bool reset_position_ids = false;    // positions restart after each eod
  bool reset_attention_mask = false;  // a new cu_seqlens entry after each eod
  bool eod_mask_loss = false;         // no loss where the input is eod
};

// Usage: construct, add() each of the `count` sequences, finish().
class BatchFill {
 public:
  BatchFill(const BatchFillOptions& options, MicroBatch& batch, int64_t count);

  // Adds the next sequence: tokens (S+1), of which the first num_tokens are real; the last one is
  // only a target. source: name of their file, for errors.
  void add(const int32_t* tokens, int64_t num_tokens, int64_t sample, const std::string& source);
  void finish();

 private:
  void check_tokens(const int32_t* tokens, int64_t num_tokens, const std::string& source) const;
  const BatchFillOptions& options_;
  MicroBatch& batch_;
  int64_t filled_ = 0;  // tokens of the batch written so far
};

}  // namespace trireme
