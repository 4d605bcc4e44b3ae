// Fine-tuning examples in memory (ExampleSet), and the micro-batches made of them (ExampleSource).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "training/data/batch_source.h"
#include "training/data/examples/example.h"
#include "training/data/examples/packing.h"

namespace trireme {

struct ExampleSetOptions {
  int64_t sequence_length = 0;
  int64_t vocab_size = 0;  // of the model
  bool pairs = false;      // preferences: an item is two documents, in the same sequence
  bool drop_long = false;  // drop items that are too long; false: truncate them
  int threads = 1;
};

// Items in file order; an item is one document, or the two of a preference pair. A document of n
// tokens takes n - 1 positions of a sequence, since its last token is only a target. A document is
// too long if it takes more than sequence_length positions, or half of that in a pair.
class ExampleSet {
 public:
  struct Stats {
    int64_t records = 0;
    int64_t truncated = 0;     // items kept with a truncated document
    int64_t dropped_long = 0;  // items dropped because they are too long
    // Items dropped because truncation leaves a document without trained tokens.
    int64_t dropped_cut = 0;
    int64_t longest_cut = 0;        // tokens of the longest document of the dropped_cut items
    int64_t dropped_unlearned = 0;  // items dropped because a document has no trained tokens
    int64_t spelling_markup = 0;    // records whose text spells special tokens, as plain text
    // Members of messages that the template did not read, by name; at most 16 names.
    struct Unread {
      int64_t records = 0;  // records that have the member
      std::string first;    // file and line of the first one
    };
    std::map<std::string, Unread> unread_members = {};
    int64_t tokens = 0;   // tokens of the kept items
    int64_t targets = 0;  // those of them with loss
  };
  // Reads the files. InputError, with file and line, if a record cannot be read or has a token
  // outside the model's vocabulary; also if no item is kept.
  ExampleSet(const std::vector<std::string>& files, const ExampleReader& reader,
             const ExampleSetOptions& options);

  // One item per document, each of at least two tokens.
  explicit ExampleSet(const std::vector<Example>& documents);

  int64_t items() const { return documents() / documents_per_item_; }
  int64_t documents() const { return static_cast<int64_t>(begin_.size()) - 1; }
  int documents_per_item() const { return documents_per_item_; }
  int64_t length(int64_t item) const;  // positions that the item takes in a sequence
  struct Document {
    const int32_t* tokens;
    const uint8_t* loss_mask;
    int64_t size;
  };
  Document document(int64_t d) const;
  const Stats& stats() const { return stats_; }
  std::string describe() const;  // for the log: sizes, and numbers of dropped items
  // Checksum of all tokens and masks of trained tokens, 16 hex digits: equal if the same tokens are
  // trained on in the same order.
  std::string fingerprint() const;

 private:
  void add_item(std::vector<Example>& documents, const ExampleSetOptions& options,
                const std::string& place);
  void add_document(const Example& document);
  int documents_per_item_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> loss_mask_;
  std::vector<int64_t> begin_{0};
  Stats stats_;
};

// Source of sequences that are packed with whole documents. Positions restart with each document,
// and attention does not cross documents; the padding of a sequence is a separate document without
// targets. With `shuffle` every epoch visits all sequences, in an order that depends on the epoch
// and the seed; otherwise they are visited once, in order.
class ExampleSource : public BatchSource {
 public:
  struct Options {
    int64_t sequence_length = 0;
    bool packing = true;  // false: one item per sequence
    bool shuffle = false;
    uint64_t seed = 1234;
    double epochs = 0;  // with shuffle: samples after these epochs are padding; 0: no limit
  };
  // items: the items of `set` that this source uses.
  ExampleSource(std::shared_ptr<const ExampleSet> set, const std::vector<int64_t>& items,
                const Options& options);

  int64_t samples_per_epoch() const { return packing_.bins(); }
  int64_t num_samples() const override { return num_samples_; }
  int64_t num_targets() const override { return -1; }
  void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) override;
  std::string describe() const override;
  const ExampleSet& set() const { return *set_; }
  const std::vector<int64_t>& items() const { return items_; }
  // Pairs only: sets the reference log-probability of each document of the set, for the pairs of
  // the batches.
  void set_reference_log_probabilities(std::shared_ptr<const std::vector<double>> log_likelihoods) {
    reference_log_probabilities_ = std::move(log_likelihoods);
  }
  // Pair of an item outside any batch: the positions of both responses start at 0.
  PreferencePair pair(int64_t item) const;
  // Document of the token with global index `row` (MicroBatch::global_index), which must not be
  // padding. Requires a source without shuffle.
  int64_t document_of(int64_t row);
  // Items of a sample, in the order of its documents; none if the sample is padding.
  std::vector<int64_t> items_of(int64_t sample);

 private:
  int64_t bin_of(int64_t sample);
  void add_document(const ExampleSet::Document& document, MicroBatch& batch, int64_t row,
                    size_t at) const;
  PreferenceResponse preference_response(int64_t document, int64_t begin) const;
  std::shared_ptr<const ExampleSet> set_;
  std::vector<int64_t> items_;
  Options options_;
  std::shared_ptr<const std::vector<double>> reference_log_probabilities_;
  Packing packing_;  // of items
  int64_t num_samples_ = 0, used_ = 0;
  int64_t epoch_ = -1;          // epoch of order_
  std::vector<int64_t> order_;  // of the bins
};

}  // namespace trireme
