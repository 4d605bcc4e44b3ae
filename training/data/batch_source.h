// Micro-batches for training and validation.
//
// A source hands out samples by number, so that the data position of a run is one integer
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

// B sequences of S tokens, flat. The vectors keep their capacity when a batch is filled again, and
// never need more than the first fill reserved.
struct MicroBatch {
  std::vector<int32_t> tokens;     // (B*S)
  std::vector<int32_t> targets;    // (B*S) kIgnoredTarget where there is no loss
  std::vector<int32_t> positions;  // (B*S) from 0 in each sequence, or document
  std::vector<int64_t> rows;       // (B*S) sample*S + offset: keys dropout, the same in all layouts
  std::vector<int32_t> cu_seqlens;  // (sequences or documents + 1) from 0 to B*S
  int32_t max_seqlen = 0;           // longest of them
  int64_t valid_targets = 0;        // targets with loss
  // Of preferences: the answers, whose tokens all are here.
  std::vector<PreferencePair> pairs;
  // Of a context-parallel rank's part of a batch (training/step/local_batch.h): who sees whom.
  std::shared_ptr<ContextPlan> context;
};

// First sample of the micro-batch of `rank` when `consumed` samples were taken before this group of
// ranks * micro_batch_size: Megatron's slicing.
inline int64_t first_sample(int64_t consumed, int64_t micro_batch_size, int rank) {
  return consumed + rank * micro_batch_size;
}

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual int64_t num_samples() const = 0;
  // Targets with loss in all samples; -1 when it is not known without reading them (eod_mask_loss).
  virtual int64_t num_targets() const = 0;
  // Samples by number, in the order given. Those at or beyond num_samples() are padding: token 0,
  // targets all ignored. InputError names the file of a token the model has no row for.
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
  // Validation sets with names must hold a whole sequence: a run's length is chosen for its data,
  // another command's may be longer than a set that served the run.
  bool whole_sequences = false;
};

// Which sequences of a token file belong to which set: when config.split is empty, or config.valid
// or config.test is given, every file is used whole for the set that lists it; else config.split
// divides the files of config.train. Where masks need the end-of-document id and
// config.eod_token_id is -1 (a configuration that was read has it resolved), the tokenizer of
// config.tokenizer says it.
//
// Opening checks what can be checked at once: the files, the split, the tokenizer's vocabulary and
// the first tokens of each file against the model's vocabulary. InputError otherwise.

// Training data in Megatron's order: num_samples() >= total_samples, the number the run will take.
std::unique_ptr<BatchSource> make_train_source(const DataConfig& config,
                                               const BatchSourceOptions& options,
                                               int64_t total_samples);

// The validation (or test) data in file order, every token of it: full sequences, then the rest of
// each file padded with ignored targets, so that the sum of losses over num_targets() is the loss
// per token of the whole set.
struct ValidationSource {
  std::string name;  // "" of a set that stands alone
  std::unique_ptr<BatchSource> source;
};
// A set that stands alone is left out when it holds no two tokens of one file. Sets with names were
// asked for: each must hold two tokens of one file, or a whole sequence of one
// (options.whole_sequences), and what is wrong with any of them is told at once.
std::vector<ValidationSource> make_validation_sources(const DataConfig& config,
                                                      const BatchSourceOptions& options);
// nullptr when the set holds no two tokens of one file.
std::unique_ptr<BatchSource> make_test_source(const DataConfig& config,
                                              const BatchSourceOptions& options);

// Whether the training samples come in another order when the run takes samples_now of them instead
// of samples_before: the epochs that are shuffled together are others. Empty when not; else a note.
std::string order_change(const DataConfig& config, const BatchSourceOptions& options,
                         int64_t samples_before, int64_t samples_now);

// Where make_validation_sources() gave none: why, as a sentence without its end, and behind a
// semicolon what to change.
std::string why_no_validation(const DataConfig& config);

}  // namespace trireme
