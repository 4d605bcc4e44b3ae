// Samples of one token file in Megatron's order, without Megatron's index files.
//
// The sequences of the range are repeated for E epochs and shuffled; one after the other they form
// a stream of tokens. Sample j is the S+1 stream tokens [j*S, j*S + S]; its last token is also the
// first of sample j+1. Samples are visited in a shuffled order. Megatron's sample index is replaced
// by a binary search in a prefix sum of the sequence lengths.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/token_file.h"

namespace trireme {

class NumpyRandomState;

// Sequences [begin, end) of a token file.
struct SequenceRange {
  int64_t begin = 0, end = 0;
};

// Divides a file's sequences among training, validation and test by data.split ("969,30,1", see
// read_split() in training/config/data_path.h). Boundaries are rounded half to even, as in Python.
// InputError for an invalid split.
std::array<SequenceRange, 3> split_sequences(const std::string& split, int64_t num_sequences);

// Epochs from which num_samples samples are read; equal plans give equal sample orders.
struct EpochPlan {
  int64_t epochs = 1;   // smallest number that gives num_samples
  int64_t samples = 0;  // in all epochs
  // Samples that are shuffled together; the rest, if any, is the last epoch, shuffled separately.
  int64_t first_part = 0;
  bool operator==(const EpochPlan&) const = default;
};
EpochPlan plan_epochs(int64_t tokens_per_epoch, int64_t num_samples, int64_t sequence_length);

class GptDataset {
 public:
  // Provides at least num_samples samples, from the epochs of plan_epochs(). InputError if the
  // range has fewer than S+1 tokens, if `seed` does not fit in 32 bits, or if the epochs have
  // 2^32 - 1 samples or more.
  GptDataset(std::shared_ptr<const TokenFile> file, SequenceRange range, int64_t num_samples,
             int64_t sequence_length, uint64_t seed);

  int64_t num_samples() const { return static_cast<int64_t>(shuffle_index_.size()); }
  int64_t num_epochs() const { return num_epochs_; }
  int64_t tokens_per_epoch() const { return tokens_per_epoch_; }
  const TokenFile& file() const { return *file_; }

  // Copies the S+1 tokens of sample number `index` in training order.
  void copy_sample(int64_t index, int32_t* tokens) const;

 private:
  // last_apart: the last epoch is shuffled separately.
  void build_document_index(NumpyRandomState& random, SequenceRange range, bool last_apart);
  void build_shuffle_index(NumpyRandomState& random, bool last_apart, int64_t first_part,
                           int64_t total);

  std::shared_ptr<const TokenFile> file_;
  int64_t sequence_length_ = 0;
  int64_t tokens_per_epoch_ = 0, num_epochs_ = 1;
  std::vector<int32_t> document_index_;  // sequences of the stream
  std::vector<int64_t> stream_begin_;    // (sequences of the stream + 1) first token of each
  std::vector<uint32_t> shuffle_index_;  // position in training -> sample
};

}  // namespace trireme
