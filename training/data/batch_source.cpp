#include "training/data/batch_source.h"

#include <algorithm>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/text/tokenizer.h"
#include "training/data/batch_fill.h"
#include "training/data/blend.h"
#include "training/data/gpt_dataset.h"

namespace trireme {
namespace {

// Number of tokens of each file that are checked against the vocabulary before a run begins; the
// others are checked when they are used.
constexpr int64_t kProbedTokens = 1 << 20;

enum class Set { kTrain, kValidation, kTest };

struct Part {
  double weight = 1;
  std::shared_ptr<const TokenFile> file;
  SequenceRange range;
  int64_t first_token() const { return file->sequence_begin(range.begin); }
  int64_t num_tokens() const { return file->sequence_begin(range.end) - first_token(); }
};

void probe_vocabulary(const TokenFile& file, int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kProbedTokens, file.num_tokens())));
  file.copy_tokens(0, static_cast<int64_t>(tokens.size()), tokens.data());
  const auto largest = std::max_element(tokens.begin(), tokens.end());
  if (largest == tokens.end() || *largest < vocab_size) return;
  fail_input("token ", *largest, " in token file ", file.prefix(),
             " is outside the model's vocabulary of ", vocab_size,
             ": raise model.vocab_size or prepare the data with the model's tokenizer");
}

// True if each set lists its own files, so that data.split is not used.
bool has_own_files(const DataConfig& config) {
  return config.split.empty() || !config.valid.empty() || !config.test.empty();
}

// Opens the files of a blend. split: data.split, of which the share of `set` is used; empty: whole
// files.
std::vector<Part> open_files(const std::vector<BlendPart>& listed, const std::string& split,
                             Set set, int64_t vocab_size) {
  std::vector<Part> parts;
  for (const BlendPart& blend : listed) {
    Part part{blend.weight, std::make_shared<TokenFile>(blend.prefix), {}};
    part.range = {0, part.file->num_sequences()};
    if (!split.empty())
      part.range = split_sequences(split, part.file->num_sequences())[static_cast<size_t>(set)];
    probe_vocabulary(*part.file, vocab_size);
    parts.push_back(std::move(part));
  }
  return parts;
}

// Opens the files of a set without a name.
std::vector<Part> open_parts(const DataConfig& config, Set set, int64_t vocab_size) {
  const bool own_files = has_own_files(config);
  if (!own_files) return open_files(config.train, config.split, set, vocab_size);
  if (set == Set::kTrain) return open_files(config.train, "", set, vocab_size);
  if (set == Set::kTest) return open_files(config.test, "", set, vocab_size);
  if (config.valid.empty()) return {};
  return open_files(config.valid.front().parts, "", set, vocab_size);
}

BatchFillOptions fill_options(const DataConfig& config, const BatchSourceOptions& options) {
  BatchFillOptions fill;
  fill.sequence_length = options.sequence_length;
  fill.vocab_size = options.vocab_size;
  fill.reset_position_ids = config.reset_position_ids;
  fill.reset_attention_mask = config.reset_attention_mask;
  fill.eod_mask_loss = config.eod_mask_loss;
  int64_t eod = config.eod_token_id;
  if (!config.tokenizer.empty()) {
    const auto tokenizer = load_tokenizer(config.tokenizer);
    if (tokenizer->vocab_size() > options.vocab_size) {
      fail_input("tokenizer ", tokenizer->name(), " has ", tokenizer->vocab_size(),
                 " ids, more than the model's vocabulary of ", options.vocab_size,
                 ": set model.vocab_size to at least ", tokenizer->vocab_size());
    }
    if (eod < 0) eod = tokenizer->eod_id();
  }
  const bool needs_eod = fill.reset_position_ids || fill.reset_attention_mask || fill.eod_mask_loss;
  if (needs_eod && eod < 0) {
    fail_input("data.reset_position_ids, reset_attention_mask and eod_mask_loss need the ",
               "end-of-document id: set data.eod_token_id or data.tokenizer");
  }
  if (needs_eod && eod >= options.vocab_size) {
    fail_input("data.eod_token_id ", eod, " is outside the model's vocabulary of ",
               options.vocab_size);
  }
  if (needs_eod) fill.eod = narrow<int32_t>(eod);
  return fill;
}

// Normalized blend weights.
std::vector<double> blend_weights(const std::vector<Part>& parts) {
  std::vector<double> weights;
  for (const Part& part : parts) {
    if (!(part.weight > 0)) {
      fail_input("data.data_path: weight ", part.weight, " of ", part.file->prefix(),
                 " is not above 0");
    }
    weights.push_back(part.weight);
  }
  return normalize_weights(weights);
}

// Number of samples to build of each part, for a run that reads total_samples.
std::vector<int64_t> samples_of_parts(const std::vector<Part>& parts, int64_t total_samples) {
  if (parts.size() == 1) return {total_samples};
  return blend_sizes(blend_weights(parts), total_samples).build;
}

class TrainSource : public BatchSource {
 public:
  TrainSource(const DataConfig& config, const BatchSourceOptions& options, int64_t total_samples)
      : fill_(fill_options(config, options)) {
    const std::vector<Part> parts = open_parts(config, Set::kTrain, options.vocab_size);
    if (parts.empty())
      fail_input("data.data_path names no token file, expected at least one to train on");
    const auto add = [&](const Part& part, int64_t samples) {
      datasets_.emplace_back(part.file, part.range, samples, options.sequence_length, options.seed);
    };
    if (parts.size() == 1) {
      add(parts[0], total_samples);
      num_samples_ = datasets_[0].num_samples();
    } else {
      build_blend(parts, total_samples, add);
    }
    tokens_.resize(static_cast<size_t>(options.sequence_length) + 1);
  }

  int64_t num_samples() const override { return num_samples_; }
  int64_t num_targets() const override {
    return fill_.eod_mask_loss ? -1 : num_samples_ * fill_.sequence_length;
  }

  void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) override {
    BatchFill out(fill_, batch, std::ssize(samples));
    for (const int64_t sample : samples) {
      if (sample >= num_samples_) {
        out.add(tokens_.data(), 0, sample, "");
        continue;
      }
      const auto at = static_cast<size_t>(sample);
      const bool blended = datasets_.size() > 1;
      const GptDataset& dataset = datasets_[blended ? blend_.dataset[at] : 0];
      dataset.copy_sample(blended ? blend_.sample[at] : sample, tokens_.data());
      out.add(tokens_.data(), fill_.sequence_length + 1, sample, dataset.file().prefix());
    }
    out.finish();
  }

  std::string describe() const override {
    std::string out = concat(num_samples_, " samples of ", fill_.sequence_length, " tokens from ");
    for (size_t d = 0; d < datasets_.size(); ++d) {
      out += concat(d > 0 ? ", " : "", datasets_[d].file().prefix(), " (",
                    datasets_[d].tokens_per_epoch(), " tokens x ", datasets_[d].num_epochs(),
                    datasets_[d].num_epochs() == 1 ? " epoch)" : " epochs)");
    }
    return out;
  }

 private:
  template <class Add>
  void build_blend(const std::vector<Part>& parts, int64_t total_samples, const Add& add) {
    const std::vector<double> weights = blend_weights(parts);
    const BlendSizes sizes = blend_sizes(weights, total_samples);
    for (size_t d = 0; d < parts.size(); ++d) add(parts[d], sizes.build[d]);
    // Megatron normalizes a second time when it builds the index.
    blend_ = build_blend_index(normalize_weights(weights), sizes.total);
    num_samples_ = sizes.total;
    std::vector<int64_t> drawn(parts.size(), 0);
    for (const uint16_t d : blend_.dataset) ++drawn[d];
    for (size_t d = 0; d < parts.size(); ++d) {
      if (drawn[d] <= datasets_[d].num_samples()) continue;
      fail_input("data.data_path: the blend draws ", drawn[d], " samples of ",
                 parts[d].file->prefix(), ", which was built with only ",
                 datasets_[d].num_samples(), "; raise its weight or leave it out");
    }
  }

  BatchFillOptions fill_;
  std::vector<GptDataset> datasets_;
  BlendIndex blend_;  // for several datasets
  int64_t num_samples_ = 0;
  std::vector<int32_t> tokens_;  // (S+1) of one sample
};

// Source of validation data: the parts one after the other, each starting with a new sample.
class SequentialSource : public BatchSource {
 public:
  SequentialSource(std::vector<Part> parts, const BatchFillOptions& fill)
      : parts_(std::move(parts)), fill_(fill) {
    for (const Part& part : parts_) {
      const int64_t targets = part.num_tokens() - 1;
      num_targets_ += targets;
      first_sample_.push_back(first_sample_.back() + ceil_div(targets, fill_.sequence_length));
    }
    tokens_.resize(static_cast<size_t>(fill_.sequence_length) + 1);
  }

  int64_t num_samples() const override { return first_sample_.back(); }
  int64_t num_targets() const override { return fill_.eod_mask_loss ? -1 : num_targets_; }

  void fill_samples(std::span<const int64_t> samples, MicroBatch& batch) override {
    const int64_t S = fill_.sequence_length;
    BatchFill out(fill_, batch, std::ssize(samples));
    for (const int64_t sample : samples) {
      if (sample >= num_samples()) {
        out.add(tokens_.data(), 0, sample, "");
        continue;
      }
      const auto p =
          static_cast<size_t>(std::upper_bound(first_sample_.begin(), first_sample_.end(), sample) -
                              first_sample_.begin() - 1);
      const int64_t at = (sample - first_sample_[p]) * S;
      const int64_t tokens = std::min(S + 1, parts_[p].num_tokens() - at);
      parts_[p].file->copy_tokens(parts_[p].first_token() + at, tokens, tokens_.data());
      out.add(tokens_.data(), tokens, sample, parts_[p].file->prefix());
    }
    out.finish();
  }

  std::string describe() const override {
    std::string out = concat(num_samples(), " samples of ", fill_.sequence_length, " tokens from ");
    for (size_t p = 0; p < parts_.size(); ++p) {
      out += concat(p > 0 ? ", " : "", parts_[p].file->prefix(), " (", parts_[p].num_tokens(),
                    " tokens)");
    }
    return out;
  }

 private:
  std::vector<Part> parts_;
  BatchFillOptions fill_;
  std::vector<int64_t> first_sample_{0};  // (parts + 1)
  int64_t num_targets_ = 0;
  std::vector<int32_t> tokens_;  // (S+1) of one sample
};

std::unique_ptr<BatchSource> make_sequential(const DataConfig& config,
                                             const BatchSourceOptions& options,
                                             std::vector<Part> parts) {
  std::erase_if(parts, [](const Part& part) { return part.num_tokens() < 2; });
  if (parts.empty()) return nullptr;
  return std::make_unique<SequentialSource>(std::move(parts), fill_options(config, options));
}

std::unique_ptr<BatchSource> make_named(const DataConfig& config, const BatchSourceOptions& options,
                                        const ValidationSet& set) {
  std::vector<Part> parts = open_files(set.parts, "", Set::kValidation, options.vocab_size);
  int64_t longest = 0;
  for (const Part& part : parts) longest = std::max(longest, part.num_tokens());
  const int64_t least = options.whole_sequences ? options.sequence_length + 1 : 2;
  if (longest < least)
    fail_input(
        "has ", longest, " tokens", parts.size() > 1 ? " in its longest file" : "",
        ", expected at least ",
        options.whole_sequences ? "one sequence and its last target" : "a token and its target",
        " (", least, "); prepare it from more text, or leave the set out");
  return make_sequential(config, options, std::move(parts));
}

}  // namespace

void BatchSource::fill(int64_t first, int64_t count, MicroBatch& batch) {
  range_.resize(static_cast<size_t>(count));
  std::iota(range_.begin(), range_.end(), first);
  fill_samples(range_, batch);
}

std::unique_ptr<BatchSource> make_train_source(const DataConfig& config,
                                               const BatchSourceOptions& options,
                                               int64_t total_samples) {
  return std::make_unique<TrainSource>(config, options, total_samples);
}

std::vector<ValidationSource> make_validation_sources(const DataConfig& config,
                                                      const BatchSourceOptions& options) {
  std::vector<ValidationSource> sources;
  if (config.valid.empty() || config.valid.front().name.empty()) {
    auto source =
        make_sequential(config, options, open_parts(config, Set::kValidation, options.vocab_size));
    if (source) sources.push_back({"", std::move(source)});
    return sources;
  }
  ConfigReport report;
  for (const ValidationSet& set : config.valid) {
    try {
      sources.push_back({set.name, make_named(config, options, set)});
    } catch (const InputError& e) {
      report.error(concat("data.valid_data_path.", set.name), e.what());
    }
  }
  report.throw_if_errors("validation data");
  return sources;
}

std::unique_ptr<BatchSource> make_test_source(const DataConfig& config,
                                              const BatchSourceOptions& options) {
  return make_sequential(config, options, open_parts(config, Set::kTest, options.vocab_size));
}

std::string order_change(const DataConfig& config, const BatchSourceOptions& options,
                         int64_t samples_before, int64_t samples_now) {
  const std::vector<Part> parts = open_parts(config, Set::kTrain, options.vocab_size);
  const std::vector<int64_t> before = samples_of_parts(parts, samples_before),
                             now = samples_of_parts(parts, samples_now);
  for (size_t d = 0; d < parts.size(); ++d) {
    const auto plan = [&](int64_t samples) {
      return plan_epochs(parts[d].num_tokens(), samples, options.sequence_length);
    };
    const EpochPlan was = plan(before[d]), is = plan(now[d]);
    if (was == is) continue;
    const auto shown = [](const EpochPlan& p) {
      return concat(
          p.epochs, p.epochs == 1 ? " epoch" : " epochs",
          p.first_part < p.samples ? ", the last one shuffled separately" : " shuffled together");
    };
    return concat("the samples of ", parts[d].file->prefix(), " have another order (", shown(was),
                  " before, ", shown(is), " now), so that further steps may repeat samples of the ",
                  "current epoch");
  }
  return "";
}

std::string why_no_validation(const DataConfig& config) {
  if (has_own_files(config)) {
    if (config.valid.empty()) return "data.valid_data_path is not set; give it";
    return concat("data.valid_data_path ", config.valid.front().parts.front().prefix,
                  " has fewer than two tokens; prepare it from more text");
  }
  constexpr const char* kWayOut =
      "; prepare the text as several documents, or prepare separate validation text and set "
      "data.train_data_path and data.valid_data_path";
  const std::string split = concat("data.split ", config.split);
  if (const SequenceRange all = split_sequences(config.split, 1 << 20)[1]; all.begin == all.end)
    return concat(split, " has no share for validation; give it one");
  std::string files;
  int64_t held_out = 0;
  for (const BlendPart& blend : config.train) {
    const TokenFile file(blend.prefix);
    const SequenceRange range = split_sequences(config.split, file.num_sequences())[1];
    held_out += range.end - range.begin;
    files += concat(files.empty() ? "" : ", ", file.num_sequences(),
                    file.num_sequences() == 1 ? " document in " : " documents in ", blend.prefix);
  }
  if (held_out > 0)
    return concat(split, " gives validation only documents of fewer than two tokens (", files, ")",
                  kWayOut);
  return concat(split, " gives validation less than one document (", files,
                "; a text file is one document, whatever its size)", kWayOut);
}

}  // namespace trireme
