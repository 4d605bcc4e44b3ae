// Micro-batches for training and validation.
//
// A source returns samples by number, so that the data position of a run is one integer
// (consumed_samples) and every rank can compute every rank's share. A sample is S input tokens with
// the S tokens that follow them as targets.
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

// B sequences of S tokens, flat. The vectors keep their capacity when a batch is refilled, and
// never need more than the first fill reserved.
struct MicroBatch {
  std::vector<int32_t> tokens;     // (B*S)
  std::vector<int32_t> targets;    // (B*S) kIgnoredTarget where there is no loss
  std::vector<int32_t> positions;  // (B*S) from 0 in each sequence, or document
  std::vector<int64_t> rows;       // (B*S) sample*S + offset: keys dropout, the same in all layouts
  std::vector<int32_t> cu_seqlens;  // (sequences or documents + 1) from 0 to B*S
  int32_t max_seqlen = 0;           // longest of them
  int64_t valid_targets = 0;        // targets with loss
  // Preferences only: response pairs; all of their tokens are in this batch.
  std::vector<PreferencePair> pairs;
  // Context parallelism only: attention plan of this rank's part of a batch
  // (training/step/batch_shard.h).
  std::shared_ptr<ContextPlan> context;
};

// First sample of the micro-batch of `rank` if `consumed` samples were taken before this group of
// ranks * micro_batch_size: Megatron's slicing.
inline int64_t first_sample(int64_t consumed, int64_t micro_batch_size, int rank) {
  return consumed + rank * micro_batch_size;
}

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual int64_t num_samples() const = 0;
  // Targets with loss in all samples; -1 if that requires reading them (eod_mask_loss).
  virtual int64_t num_targets() const = 0;
  // Fills samples by number, in the given order. Numbers >= num_samples() are padding: token 0, all
  // targets ignored. InputError names the file of a token outside the model's vocabulary.
  virtual void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) = 0;
  // Samples [first, first + count).
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
  // Requires named validation sets to hold a whole sequence. For training runs, whose sequence
  // length is chosen for their data. Other commands may use a longer one than a set that was
  // sufficient for the run.
  bool whole_sequences = false;
};

// Assignment of a token file's sequences to the sets. If config.split is empty, or config.valid or
// config.test is given, every file belongs as a whole to the set that lists it; otherwise
// config.split divides the files of config.train. If masks need the end-of-document id and
// config.eod_token_id is -1 (it is resolved in a configuration that was read), the tokenizer of
// config.tokenizer supplies it.
//
// Opening checks early what it can: the files, the split, the tokenizer's vocabulary and the first
// tokens of each file against the model's vocabulary. InputError otherwise.

// Training data in Megatron's order: num_samples() >= total_samples, the number that the run takes.
std::unique_ptr<BatchSource> make_train_source(const DataConfig& config,
                                               const BatchSourceOptions& options,
                                               int64_t total_samples);

// Validation (or test) data in file order, with every token: full sequences, then the rest of each
// file padded with ignored targets. The sum of losses over num_targets() is therefore the loss per
// token of the whole set.
struct ValidationSource {
  std::string name;  // "" for a single set
  std::unique_ptr<BatchSource> source;
};
// A single set is left out if none of its files holds two tokens. Named sets are required: each
// must have a file with two tokens, or with a whole sequence (options.whole_sequences). All
// problems are reported at once.
std::vector<ValidationSource> make_validation_sources(const DataConfig& config,
                                                      const BatchSourceOptions& options);
// nullptr if no file of the set holds two tokens.
std::unique_ptr<BatchSource> make_test_source(const DataConfig& config,
                                              const BatchSourceOptions& options);

// Note if the order of the training samples changes when the run takes samples_now instead of
// samples_before of them, because other epochs are shuffled together; empty if it does not.
std::string order_change(const DataConfig& config, const BatchSourceOptions& options,
                         int64_t samples_before, int64_t samples_now);

// Reason why make_validation_sources() returned nothing: a sentence without its end, and after a
// semicolon what to change.
std::string why_no_validation(const DataConfig& config);

}  // namespace trireme
