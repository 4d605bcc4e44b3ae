// Examples of fine-tuning files in memory, and batches of them.
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
  bool pairs = false;      // preferences: items of two documents, which share a sequence
  bool drop_long = false;
  int threads = 1;
};

// Items of one or two documents, in file order. A document of n tokens takes n - 1 positions of a
// sequence: its last token is only a target.
class ExampleSet {
 public:
  struct Stats {
    int64_t records = 0;
    int64_t truncated = 0;          // items with a document cut at the end
    int64_t dropped_long = 0;       // too long, left out
    int64_t dropped_cut = 0;        // truncated so that no token of a response remains
    int64_t longest_cut = 0;        // tokens of the longest of those
    int64_t dropped_unlearned = 0;  // items without trained tokens
    int64_t spelling_markup = 0;    // records in which spelled special tokens remain text
    // Members of messages that the template did not read: number of records, and the first record.
    struct Unread {
      int64_t records = 0;
      std::string first;
    };
    std::map<std::string, Unread> unread_members = {};
    int64_t tokens = 0;   // in the items kept
    int64_t targets = 0;  // of these tokens, those with loss
  };
  // InputError with file and line of a record that cannot be read, or that has a token outside the
  // model's vocabulary.
  ExampleSet(const std::vector<std::string>& files, const ExampleReader& reader,
             const ExampleSetOptions& options);

  // One item per document; each has at least two tokens.
  explicit ExampleSet(const std::vector<Example>& documents);

  int64_t items() const { return documents() / documents_per_item_; }
  int64_t documents() const { return static_cast<int64_t>(begin_.size()) - 1; }
  int documents_per_item() const { return documents_per_item_; }
  int64_t length(int64_t item) const;  // positions of a sequence
  struct Document {
    const int32_t* tokens;
    const uint8_t* learned;
    int64_t size;
  };
  Document document(int64_t d) const;
  const Stats& stats() const { return stats_; }
  std::string describe() const;  // sizes and what was left out
  // Fingerprint of all tokens and trained-token masks, 16 hex digits: equal if the same tokens are
  // trained on in the same order.
  std::string fingerprint() const;

 private:
  void add_item(std::vector<Example>& documents, const ExampleSetOptions& options,
                const std::string& place);
  void add_document(const Example& document);
  int documents_per_item_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> learned_;
  std::vector<int64_t> begin_{0};
  Stats stats_;
};

// Sequences of whole documents. Positions restart with each document and attention does not cross
// them; the rest of a sequence is a separate document without targets. Training (shuffle) visits
// all sequences once per epoch, in an order keyed by epoch number and seed; otherwise they are
// visited once, in order.
class ExampleSource : public BatchSource {
 public:
  struct Options {
    int64_t sequence_length = 0;
    bool packing = true;
    bool shuffle = false;
    uint64_t seed = 1234;
    double epochs = 0;  // with shuffle: sequences beyond them are padding; 0: unlimited
  };
  // items: those of the set that belong to this source.
  ExampleSource(std::shared_ptr<const ExampleSet> set, const std::vector<int64_t>& items,
                const Options& options);

  int64_t samples_per_epoch() const { return packing_.bins(); }
  int64_t num_samples() const override { return num_samples_; }
  int64_t num_targets() const override { return -1; }
  void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) override;
  std::string describe() const override;
  const ExampleSet& set() const { return *set_; }
  const std::vector<int64_t>& items() const { return items_; }
  // Pairs only: sets the reference log-probabilities of each document of the set; batches then
  // include their pairs.
  void set_reference_log_probabilities(std::shared_ptr<const std::vector<double>> log_likelihoods) {
    reference_log_probabilities_ = std::move(log_likelihoods);
  }
  // Pair of the set; its token positions are not those of any batch.
  PreferencePair pair(int64_t item) const;
  // Document of a token with a target; row: MicroBatch::rows of a source that does not shuffle.
  int64_t document_of(int64_t row);
  // Items of a sample, in the order of its documents; none after the last sample.
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
