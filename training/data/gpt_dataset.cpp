#include "training/data/gpt_dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "training/config/data_path.h"
#include "training/data/shuffle.h"

namespace trireme {

std::array<SequenceRange, 3> split_sequences(const std::string& split, int64_t num_sequences) {
  std::array<double, 3> weights{};
  if (const std::string problem = read_split(split, weights); !problem.empty())
    fail_input("data.split \"", split, "\": ", problem);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::array<SequenceRange, 3> ranges;
  double fraction = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double next = fraction + weights[i] / sum;
    // nearbyint() rounds half to even.
    const auto boundary = [&](double f) {
      return static_cast<int64_t>(std::nearbyint(f * static_cast<double>(num_sequences)));
    };
    ranges[i] = {boundary(fraction), std::min(boundary(next), num_sequences)};
    fraction = next;
  }
  return ranges;
}

EpochPlan plan_epochs(int64_t tokens_per_epoch, int64_t num_samples, int64_t sequence_length) {
  const int64_t S = sequence_length;
  const int64_t tokens_wanted = checked_add(checked_mul(num_samples, S), 1);
  EpochPlan plan;
  plan.epochs = std::max<int64_t>(1, ceil_div(tokens_wanted, tokens_per_epoch));
  plan.samples = plan.first_part = (checked_mul(plan.epochs, tokens_per_epoch) - 1) / S;
  if (plan.epochs == 1) return plan;
  // The last epoch is shuffled separately if less than 80 % of it will be used.
  const int64_t before_last = ((plan.epochs - 1) * tokens_per_epoch - 1) / S;
  const int64_t per_epoch = (tokens_per_epoch - 1) / S;
  const auto threshold = static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
  if (num_samples - before_last < threshold) plan.first_part = before_last;
  return plan;
}

GptDataset::GptDataset(std::shared_ptr<const TokenFile> file, SequenceRange range,
                       int64_t num_samples, int64_t sequence_length, uint64_t seed)
    : file_(std::move(file)), sequence_length_(sequence_length) {
  if (seed > std::numeric_limits<uint32_t>::max()) {
    fail_input("seed ", seed, " is too large, expected a seed below 4294967296");
  }
  const int64_t S = sequence_length;
  tokens_per_epoch_ = file_->sequence_begin(range.end) - file_->sequence_begin(range.begin);
  if (tokens_per_epoch_ < S + 1) {
    fail_input("token file ", file_->prefix(), ": its split of ", range.end - range.begin,
               " sequences has ", tokens_per_epoch_, " tokens, expected at least the ", S + 1,
               " of one sample; use more text, another data.split or a shorter sequence_length");
  }
  const EpochPlan plan = plan_epochs(tokens_per_epoch_, num_samples, S);
  num_epochs_ = plan.epochs;
  const int64_t total = plan.samples;
  if (total >= std::numeric_limits<uint32_t>::max()) {
    fail_input("data: ", total, " samples of ", file_->prefix(), " are not supported, expected at ",
               "most 4294967294; use fewer steps or longer sequences");
  }
  const bool last_apart = plan.first_part != total;
  NumpyRandomState random(static_cast<uint32_t>(seed));
  build_document_index(random, range, last_apart);
  build_shuffle_index(random, last_apart, plan.first_part, total);
}

void GptDataset::build_document_index(NumpyRandomState& random, SequenceRange range,
                                      bool last_apart) {
  const auto per_epoch = static_cast<size_t>(range.end - range.begin);
  document_index_.resize(static_cast<size_t>(checked_mul(num_epochs_, range.end - range.begin)));
  for (size_t i = 0; i < document_index_.size(); ++i) {
    document_index_[i] = narrow<int32_t>(range.begin + static_cast<int64_t>(i % per_epoch));
  }
  const std::span<int32_t> all(document_index_);
  const size_t together = last_apart ? all.size() - per_epoch : all.size();
  random.shuffle(all.first(together));
  if (last_apart) random.shuffle(all.subspan(together));
  stream_begin_.resize(document_index_.size() + 1);
  stream_begin_[0] = 0;
  for (size_t i = 0; i < document_index_.size(); ++i) {
    stream_begin_[i + 1] = stream_begin_[i] + file_->sequence_length(document_index_[i]);
  }
}

void GptDataset::build_shuffle_index(NumpyRandomState& random, bool last_apart, int64_t first_part,
                                     int64_t total) {
  shuffle_index_.resize(static_cast<size_t>(total));
  std::iota(shuffle_index_.begin(), shuffle_index_.end(), uint32_t{0});
  const std::span<uint32_t> all(shuffle_index_);
  random.shuffle(all.first(static_cast<size_t>(first_part)));
  if (last_apart) random.shuffle(all.subspan(static_cast<size_t>(first_part)));
}

void GptDataset::copy_sample(int64_t index, int32_t* tokens) const {
  TRIREME_CHECK(index >= 0 && index < num_samples(), "sample ", index, " of ", num_samples());
  int64_t at = shuffle_index_[static_cast<size_t>(index)] * sequence_length_;
  const int64_t end = at + sequence_length_ + 1;
  // Last sequence that begins at or before `at`.
  auto slot = static_cast<size_t>(std::upper_bound(stream_begin_.begin(), stream_begin_.end(), at) -
                                  stream_begin_.begin() - 1);
  for (; at < end; ++slot) {
    const int64_t count = std::min(end, stream_begin_[slot + 1]) - at;
    const int64_t offset = at - stream_begin_[slot];
    file_->copy_tokens(file_->sequence_begin(document_index_[slot]) + offset, count, tokens);
    tokens += count;
    at += count;
  }
}

}  // namespace trireme
