// Sources of micro-batches for training and validation.
//
// A sample is S input tokens and their S targets, which are the same tokens shifted by one. A
// source returns samples by number. The data position of a run is therefore one integer
// (consumed_samples), and each rank computes which samples are its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/context/context_plan.h"
#include "training/config/run_config.h"
#include "transformer/layers/preference.h"

namespace trireme {

// Micro-batch: B sequences of S tokens, flat. Refilling a batch does not allocate: the first fill
// reserves the largest size.
struct MicroBatch {
  std::vector<int32_t> tokens;     // (B*S)
  std::vector<int32_t> targets;    // (B*S) kIgnoredTarget where there is no loss
  std::vector<int32_t> positions;  // (B*S) from 0 in each sequence, or in each document
  // (B*S) Global token index, sample*S + offset: the key of dropout, the same in all layouts.
  std::vector<int64_t> global_index;
  std::vector<int32_t> cu_seqlens;  // (sequences or documents + 1) offsets from 0 to B*S
  int32_t max_seqlen = 0;           // length of the longest sequence or document
  int64_t valid_targets = 0;        // targets with loss
  // Preferences only: response pairs, whose tokens are all in this batch.
  std::vector<PreferencePair> pairs;
  // Context parallelism only: attention plan of this rank's shard (training/step/batch_shard.h).
  std::shared_ptr<ContextPlan> context;
};

// First sample of the micro-batch of data-parallel rank `rank`, as in Megatron. consumed: samples
// before those that all ranks read together for this micro-batch.
inline int64_t first_sample(int64_t consumed, int64_t micro_batch_size, int rank) {
  return consumed + rank * micro_batch_size;
}

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual int64_t num_samples() const = 0;
  // Number of targets with loss in all samples; -1 if only reading the samples would show it.
  virtual int64_t num_targets() const = 0;
  // Fills the batch with the samples of these numbers, in this order. A number >= num_samples()
  // gives padding: token 0, all targets ignored. InputError if a token is outside the model's
  // vocabulary; it names the file.
  virtual void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) = 0;
  // The same for samples [first, first + count).
  void fill(int64_t first, int64_t count, MicroBatch& batch);
  // One line for the log: files, tokens, epochs.
  virtual std::string describe() const = 0;

 private:
  std::vector<int64_t> range_;  // reused by fill()
};

struct BatchSourceOptions {
  int64_t sequence_length = 0;
  int64_t vocab_size = 0;  // of the model
  uint64_t seed = 1234;
  // Requires every named validation set to have at least one whole sequence. Training runs require
  // it; other commands do not, since their sequence length may exceed the run's.
  bool whole_sequences = false;
};

// The functions below assign the sequences of token files to the training, validation and test
// sets. config.split divides each file of config.train among the three. If config.split is empty,
// or config.valid or config.test is set, every file belongs as a whole to the set that lists it.
//
// All throw InputError if a file or the split is invalid, or if the tokenizer's vocabulary or one
// of a file's first 2^20 tokens exceeds the model's. If the masks need the end-of-document id
// and config.eod_token_id is -1, the tokenizer of config.tokenizer provides it.

// Training data in Megatron's order. total_samples: samples that the run reads; num_samples() is at
// least that.
std::unique_ptr<BatchSource> make_train_source(const DataConfig& config,
                                               const BatchSourceOptions& options,
                                               int64_t total_samples);

// Validation (or test) data: every token of the set once, file by file. The last sequence of a file
// is padded with ignored targets. The sum of losses divided by the number of targets is therefore
// the loss per token of the whole set.
struct ValidationSource {
  std::string name;  // "" for a single set
  std::unique_ptr<BatchSource> source;
};
// One source per validation set. A single set without a name is omitted if none of its files has
// two tokens. Each named set must have a file with two tokens, or with a whole sequence
// (options.whole_sequences); one InputError reports all that do not.
std::vector<ValidationSource> make_validation_sources(const DataConfig& config,
                                                      const BatchSourceOptions& options);
// nullptr if no file of the test set has two tokens.
std::unique_ptr<BatchSource> make_test_source(const DataConfig& config,
                                              const BatchSourceOptions& options);

// Returns a note if the order of the training samples differs between a run that reads
// samples_before of them and one that reads samples_now, because other epochs are shuffled
// together; "" if it is the same.
std::string order_change(const DataConfig& config, const BatchSourceOptions& options,
                         int64_t samples_before, int64_t samples_now);

// Reason why make_validation_sources() returned no source, then a semicolon and what to change.
std::string why_no_validation(const DataConfig& config);

}  // namespace trireme
