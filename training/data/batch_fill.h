// Builder of a MicroBatch from token sequences: adds targets, positions, document boundaries and
// loss masks.
#pragma once

#include <cstdint>
#include <vector>

#include "training/data/batch_source.h"

namespace trireme {

struct BatchFillOptions {
  int64_t sequence_length = 0;
  int64_t vocab_size = 0;             // of the model
  int32_t eod = -1;                   // id of the end-of-document token; -1: not needed
  bool reset_position_ids = false;    // positions restart after each eod
  bool reset_attention_mask = false;  // a new cu_seqlens entry after each eod
  bool eod_mask_loss = false;         // no loss where the input is eod
};

// Usage: construct for `count` sequences, add() each of them, finish(). `options` and `batch` must
// outlive this object.
class BatchFill {
 public:
  BatchFill(const BatchFillOptions& options, MicroBatch& batch, int64_t count);

  // Adds the next sequence. tokens (S+1): the first num_tokens (0 to S+1) are real, the rest is
  // padding. The last real one has no target. sample: number of the sequence, which determines the
  // global token indices. source: name of the token file, for errors. InputError if a token is
  // outside the vocabulary.
  void add(const int32_t* tokens, int64_t num_tokens, int64_t sample, const std::string& source);
  void finish();  // sets batch.max_seqlen

 private:
  void check_tokens(const int32_t* tokens, int64_t num_tokens, const std::string& source) const;
  const BatchFillOptions& options_;
  MicroBatch& batch_;
  int64_t filled_ = 0;  // tokens of the batch written so far
};

}  // namespace trireme
