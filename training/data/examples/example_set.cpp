#include "training/data/examples/example_set.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/parallel_for.h"
#include "engine/core/tensor.h"
#include "engine/io/checksum.h"
#include "engine/io/strict_json.h"
#include "engine/io/text_reader.h"
#include "engine/ops/loss/cross_entropy.h"
#include "training/data/shuffle.h"

namespace trireme {
namespace {

// Bytes of text that are collected before several threads process them.
constexpr size_t kBatchBytes = size_t{8} << 20;

// Maximum number of names of unread members that are counted.
constexpr size_t kMaxUnreadNames = 16;

// Maximum number of keys per object of a record.
constexpr size_t kMaxKeys = 4096;

int64_t targets_of(const Example& example) {
  if (example.tokens.empty()) return 0;
  return std::count(example.loss_mask.begin() + 1, example.loss_mask.end(), uint8_t{1});
}

std::vector<Example> read_item(const ExampleReader& reader, const std::string& line,
                               const std::string& place, bool pair) {
  const auto record =
      parse_strict_json<Json>(line, place, {.keys_per_object = kMaxKeys, .long_integers = true});
  try {
    if (!pair) return {reader.read(record)};
    auto [chosen, rejected] = reader.read_pair(record);
    return {std::move(chosen), std::move(rejected)};
  } catch (const InputError& e) {
    fail_input(place, ": ", e.what());
  }
}

}  // namespace

ExampleSet::ExampleSet(const std::vector<std::string>& files, const ExampleReader& reader,
                       const ExampleSetOptions& options)
    : documents_per_item_(options.pairs ? 2 : 1) {
  TextReader lines(list_text_files(files));
  for (const TextFile& file : lines.files())
    if (!file.json_lines)
      fail_input(file.path,
                 " is not a file of examples: expected a name that ends in .jsonl or .json");
  std::vector<TextRecord> batch;
  size_t bytes = 0;
  const auto flush = [&] {
    std::vector<std::vector<Example>> read(batch.size());
    std::vector<std::exception_ptr> failures(batch.size());
    const auto place = [&](size_t i) { return lines.place(batch[i]); };
    parallel_for(options.threads, std::ssize(batch), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) try {
          read[i] = read_item(reader, batch[i].bytes, place(i), options.pairs);
        } catch (...) {
          failures[i] = std::current_exception();
        }
    });
    for (size_t i = 0; i < batch.size(); ++i) {
      if (failures[i]) std::rethrow_exception(failures[i]);  // the first in file order
      add_item(read[i], options, place(i));
    }
    batch.clear();
    bytes = 0;
  };
  for (TextRecord record; lines.next(&record); record = {}) {
    bytes += record.bytes.size();
    batch.push_back(std::move(record));
    if (bytes >= kBatchBytes) flush();
  }
  flush();
  if (items() == 0)
    fail_input(lines.files().front().path, ": no example is left to train on (", describe(), ")");
}

void ExampleSet::add_item(std::vector<Example>& documents, const ExampleSetOptions& options,
                          const std::string& place) {
  ++stats_.records;
  const auto most = static_cast<size_t>(options.sequence_length / documents_per_item_ + 1);
  bool cut = false;
  int64_t longest = 0;
  const auto unlearned = [&] {
    return std::ranges::any_of(documents, [](const Example& d) { return targets_of(d) == 0; });
  };
  const bool nothing_to_learn = unlearned();
  std::set<std::string> unread;
  for (const Example& document : documents)
    unread.insert(document.unread_members.begin(), document.unread_members.end());
  for (const std::string& name : unread) {
    if (stats_.unread_members.size() >= kMaxUnreadNames && !stats_.unread_members.contains(name))
      continue;
    Stats::Unread& member = stats_.unread_members[name];
    if (member.records++ == 0) member.first = place;
  }
  for (Example& document : documents) {
    if (document.spells_markup && &document == documents.data()) ++stats_.spelling_markup;
    longest = std::max(longest, std::ssize(document.tokens));
    for (const int32_t token : document.tokens)
      if (token >= options.vocab_size)
        fail_input(place, ": token ", token, " is outside the model's vocabulary of ",
                   options.vocab_size);
    if (document.tokens.size() <= most) continue;
    cut = true;
    document.tokens.resize(most);
    document.loss_mask.resize(most);
  }
  if (cut && options.drop_long) {
    ++stats_.dropped_long;
    return;
  }
  if (nothing_to_learn) {
    ++stats_.dropped_unlearned;
    return;
  }
  if (unlearned()) {
    ++stats_.dropped_cut;
    stats_.longest_cut = std::max(stats_.longest_cut, longest);
    return;
  }
  stats_.truncated += cut ? 1 : 0;
  for (const Example& document : documents) add_document(document);
}

void ExampleSet::add_document(const Example& document) {
  tokens_.insert(tokens_.end(), document.tokens.begin(), document.tokens.end());
  loss_mask_.insert(loss_mask_.end(), document.loss_mask.begin(), document.loss_mask.end());
  begin_.push_back(std::ssize(tokens_));
  stats_.tokens += std::ssize(document.tokens);
  stats_.targets += targets_of(document);
}

ExampleSet::ExampleSet(const std::vector<Example>& documents) : documents_per_item_(1) {
  for (const Example& document : documents) {
    TRIREME_CHECK(document.tokens.size() >= 2, "a document of ", document.tokens.size(),
                  " tokens, expected at least 2");
    add_document(document);
  }
  stats_.records = items();
}

ExampleSet::Document ExampleSet::document(int64_t d) const {
  const int64_t begin = begin_[static_cast<size_t>(d)];
  return {tokens_.data() + begin, loss_mask_.data() + begin,
          begin_[static_cast<size_t>(d) + 1] - begin};
}

int64_t ExampleSet::length(int64_t item) const {
  int64_t places = 0;
  for (int64_t d = item * documents_per_item_; d < (item + 1) * documents_per_item_; ++d)
    places += document(d).size - 1;
  return places;
}

std::string ExampleSet::describe() const {
  std::string out = concat(items(), documents_per_item_ == 2 ? " pairs of " : " examples of ",
                           stats_.tokens, " tokens, ", stats_.targets, " with loss");
  const auto add = [&](int64_t n, const char* what) {
    if (n > 0) out += concat("; ", n, " ", what);
  };
  add(stats_.truncated, "truncated");
  add(stats_.dropped_long, "dropped: longer than a sequence");
  add(stats_.dropped_cut, "dropped: truncated before the response");
  if (stats_.dropped_cut > 0) out += concat(" (longest ", stats_.longest_cut, " tokens)");
  add(stats_.dropped_unlearned,
      "dropped: no tokens to train on (no assistant message, or all with weight 0)");
  return out;
}

std::string ExampleSet::fingerprint() const {
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(begin_)));
  sum.update(std::as_bytes(std::span(tokens_)));
  sum.update(std::as_bytes(std::span(loss_mask_)));
  return checksum_text(sum.value());
}

ExampleSource::ExampleSource(std::shared_ptr<const ExampleSet> set,
                             const std::vector<int64_t>& items, const Options& options)
    : set_(std::move(set)), items_(items), options_(options) {
  std::vector<int64_t> lengths;
  for (const int64_t item : items) {
    lengths.push_back(set_->length(item));
    used_ += lengths.back();
  }
  packing_ =
      options.packing ? pack(lengths, options.sequence_length) : one_each(std::ssize(lengths));
  for (int64_t& place : packing_.items) place = items[static_cast<size_t>(place)];
  const double all = options.epochs * static_cast<double>(packing_.bins());
  num_samples_ = !options.shuffle      ? packing_.bins()
                 : options.epochs <= 0 ? std::numeric_limits<int64_t>::max()
                                       : std::max<int64_t>(1, std::llround(all));
}

int64_t ExampleSource::bin_of(int64_t sample) {
  if (!options_.shuffle) return sample;
  const int64_t epoch = sample / packing_.bins();
  if (epoch != epoch_) {
    epoch_ = epoch;
    order_.resize(static_cast<size_t>(packing_.bins()));
    std::iota(order_.begin(), order_.end(), int64_t{0});
    NumpyRandomState random(static_cast<uint32_t>(options_.seed + static_cast<uint64_t>(epoch)));
    random.shuffle(std::span<int64_t>(order_));
  }
  return order_[static_cast<size_t>(sample % packing_.bins())];
}

std::vector<int64_t> ExampleSource::items_of(int64_t sample) {
  if (sample >= num_samples_) return {};
  const auto bin = static_cast<size_t>(bin_of(sample));
  const auto at = [&](size_t b) { return packing_.items.begin() + packing_.begin[b]; };
  return {at(bin), at(bin + 1)};
}

PreferenceResponse ExampleSource::preference_response(int64_t d, int64_t begin) const {
  const ExampleSet::Document document = set_->document(d);
  return {begin, begin + document.size - 1,
          std::count(document.loss_mask + 1, document.loss_mask + document.size, uint8_t{1}),
          reference_log_probabilities_ == nullptr
              ? 0.0
              : (*reference_log_probabilities_)[static_cast<size_t>(d)]};
}

PreferencePair ExampleSource::pair(int64_t item) const {
  TRIREME_CHECK(set_->documents_per_item() == 2, "pair() of examples that are not pairs");
  return {preference_response(2 * item, 0), preference_response(2 * item + 1, 0)};
}

int64_t ExampleSource::document_of(int64_t row) {
  TRIREME_CHECK(!options_.shuffle, "document_of() of a source that shuffles");
  int64_t left = row % options_.sequence_length;
  for (const int64_t item : items_of(row / options_.sequence_length))
    for (int64_t d = 0; d < set_->documents_per_item(); ++d) {
      const int64_t document = item * set_->documents_per_item() + d;
      left -= set_->document(document).size - 1;
      if (left < 0) return document;
    }
  TRIREME_UNREACHABLE("row ", row, " belongs to no document");
}

void ExampleSource::add_document(const ExampleSet::Document& document, MicroBatch& batch,
                                 int64_t row, size_t at) const {
  for (int64_t i = 0; i + 1 < document.size; ++i) {
    const size_t to = at + static_cast<size_t>(i);
    const bool learned = document.loss_mask[i + 1] != 0;
    batch.tokens[to] = document.tokens[i];
    batch.targets[to] = learned ? document.tokens[i + 1] : kIgnoredTarget;
    batch.positions[to] = static_cast<int32_t>(i);
    batch.global_index[to] = row + i;
    batch.valid_targets += learned ? 1 : 0;
  }
}

void ExampleSource::fill_samples(std::span<const int64_t> samples, MicroBatch& batch) {
  const int64_t S = options_.sequence_length, count = std::ssize(samples);
  TRIREME_CHECK(count > 0 && S > 0, "a micro-batch of ", count, " sequences of ", S,
                " tokens, expected at least 1 of each");
  const auto tokens = static_cast<size_t>(checked_mul(count, S));
  narrow<int32_t>(tokens);
  batch.tokens.assign(tokens, 0);
  batch.targets.assign(tokens, kIgnoredTarget);
  batch.positions.assign(tokens, 0);
  batch.global_index.assign(tokens, 0);
  batch.cu_seqlens.reserve(tokens + 1);
  batch.cu_seqlens.assign(1, 0);
  batch.valid_targets = 0;
  batch.max_seqlen = 0;
  batch.pairs.clear();
  const auto close = [&](int64_t end) {
    const int32_t length = static_cast<int32_t>(end) - batch.cu_seqlens.back();
    if (length == 0) return;
    batch.max_seqlen = std::max(batch.max_seqlen, length);
    batch.cu_seqlens.push_back(static_cast<int32_t>(end));
  };
  for (int64_t s = 0; s < count; ++s) {
    int64_t at = s * S;
    const int64_t sample = samples[static_cast<size_t>(s)];
    const int64_t row = sample * S - at;
    for (const int64_t item : items_of(sample)) {
      if (set_->documents_per_item() == 2) {
        const PreferenceResponse chosen = preference_response(2 * item, at);
        batch.pairs.push_back({chosen, preference_response(2 * item + 1, chosen.end)});
      }
      for (int64_t d = 0; d < set_->documents_per_item(); ++d) {
        const ExampleSet::Document document = set_->document(item * set_->documents_per_item() + d);
        add_document(document, batch, row + at, static_cast<size_t>(at));
        at += document.size - 1;
        close(at);
      }
    }
    for (int64_t i = at, begin = at; i < (s + 1) * S; ++i) {  // padding
      batch.global_index[static_cast<size_t>(i)] = row + i;
      batch.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i - begin);
    }
    close((s + 1) * S);
  }
}

std::string ExampleSource::describe() const {
  const double filled =
      static_cast<double>(used_) /
      (static_cast<double>(packing_.bins()) * static_cast<double>(options_.sequence_length));
  return concat(packing_.items.size(), " of ", set_->describe(), "; ", packing_.bins(),
                " sequences of ", options_.sequence_length, " tokens, ", std::lround(filled * 100),
                " % filled");
}

}  // namespace trireme
