#include "serving/engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// The `count` largest logits, in descending order, ties to the lower id.
std::vector<TokenLogprob> most_probable(std::span<const float> logits, double normalizer,
                                        int64_t count) {
  std::vector<int32_t> order;
  first_of_row(logits, count, order);
  std::vector<TokenLogprob> out;
  out.reserve(order.size());
  for (const int32_t id : order)
    out.push_back({id, static_cast<double>(logits[static_cast<size_t>(id)]) - normalizer});
  return out;
}

OutputToken with_logprobs(int32_t id, std::span<const float> logits, int64_t top) {
  const double normalizer = log_sum_exp(logits);
  OutputToken token{.id = id,
                    .logprob = static_cast<double>(logits[static_cast<size_t>(id)]) - normalizer};
  if (top > 0) token.top = most_probable(logits, normalizer, top);
  return token;
}

// Forbids the last token of each word whose other tokens are the last of the text.
void forbid_words(const std::vector<std::vector<int32_t>>& words, std::span<const int32_t> text,
                  std::span<float> logits) {
  for (const std::vector<int32_t>& word : words) {
    const size_t before = word.size() - 1;
    if (before > text.size()) continue;
    if (std::ranges::equal(text.last(before), std::span(word).first(before)) &&
        std::cmp_less(word.back(), logits.size()))
      logits[static_cast<size_t>(word.back())] = kForbidden;
  }
}

// Forbids the ids whose bits are not set. Branch-free: branches on mask bits are unpredictable.
void apply_mask(const uint32_t* mask, std::span<float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    const bool allowed = (mask[id / 32] >> (id % 32) & 1) != 0;
    logits[id] = std::bit_cast<float>(allowed ? std::bit_cast<uint32_t>(logits[id])
                                              : std::bit_cast<uint32_t>(kForbidden));
  }
}

}  // namespace

void TokenCounts::clear() {
  counts_.clear();
  places_.clear();
}

void TokenCounts::add(int32_t id, int32_t count) {
  const auto [place, is_new] = places_.try_emplace(id, counts_.size());
  if (is_new) counts_.push_back({id, 0});
  counts_[place->second].count += count;
}

void check_sampling_params(const RowSamplingParams& p) {
  if (!(p.temperature >= 0 && p.temperature <= 100))
    fail_input("temperature ", p.temperature, " is not in [0, 100]");
  if (p.top_k < 0) fail_input("top_k ", p.top_k, " is negative; 0 keeps all tokens");
  if (!(p.top_p > 0 && p.top_p <= 1)) fail_input("top_p ", p.top_p, " is not in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) fail_input("min_p ", p.min_p, " is not in [0, 1]");
  if (!(p.typical_p > 0 && p.typical_p <= 1))
    fail_input("typical_p ", p.typical_p, " is not in (0, 1]");
}

Sampler::Sampler(int64_t slots, int64_t choices)
    : choices_(choices), slots_(static_cast<size_t>(slots)) {}

void Sampler::start(const SlotStart& start) {
  Slot& slot = slots_.at(static_cast<size_t>(start.slot));
  slot.sampling_params = start.sampling_params;
  slot.generated = start.generated;
  slot.seed = seed_of_draw(start.sampling_params->sampling.seed, start.draw);
  slot.text = start.history;
  slot.counts.clear();
  for (size_t i = 0; i < slot.text.size(); ++i)
    slot.counts.add(slot.text[i], std::cmp_less(i, start.prompt_tokens) ? 0 : 1);
}

const SamplingParams& Sampler::sampling_params(int32_t slot) const {
  return *slots_.at(static_cast<size_t>(slot)).sampling_params;
}

OutputToken Sampler::sample(int32_t number, int64_t position, std::span<const float> logits,
                            const uint32_t* mask) {
  Slot& slot = slots_.at(static_cast<size_t>(number));
  const SamplingParams& params = *slot.sampling_params;
  logits = logits.first(static_cast<size_t>(choices_));
  std::span<const float> used = logits;
  if (changes_logits(slot, mask)) {
    slot.logits.assign(logits.begin(), logits.end());
    change_logits(slot, mask);
    used = slot.logits;
  }
  const SampledToken sampled = sample_row(sampling(number), used, position);
  OutputToken token{.id = sampled.id, .logprob = sampled.logprob};
  if (token.id < 0) {
    const bool all_forbidden =
        std::ranges::all_of(used, [](float logit) { return logit == kForbidden; });
    if (used.data() != logits.data() && all_forbidden) token.id = kNothingLeft;
    return token;
  }
  // The log-probability is the model's own, not that of the modified logits.
  if (params.top_logprobs > 0 || (params.top_logprobs == 0 && used.data() != logits.data()))
    token = with_logprobs(sampled.id, logits, params.top_logprobs);
  ++slot.generated;
  if (!params.needs_history()) return token;
  slot.text.push_back(token.id);
  slot.counts.add(token.id, 1);
  return token;
}

bool Sampler::samples_on_device(int32_t number, const uint32_t* mask) const {
  const Slot& slot = slots_.at(static_cast<size_t>(number));
  return !changes_logits(slot, mask) && slot.sampling_params->top_logprobs <= 0 &&
         slot.sampling_params->sampling.typical_p >= 1;
}

RowSamplingParams Sampler::sampling(int32_t number) const {
  const Slot& slot = slots_.at(static_cast<size_t>(number));
  RowSamplingParams sampling = slot.sampling_params->sampling;
  sampling.seed = slot.seed;
  return sampling;
}

OutputToken Sampler::record(int32_t number, const SampledToken& token) {
  if (token.id >= 0) ++slots_.at(static_cast<size_t>(number)).generated;
  return {.id = token.id, .logprob = token.logprob};
}

OutputToken Sampler::score(int32_t number, int32_t id, std::span<const float> logits) const {
  const Slot& slot = slots_.at(static_cast<size_t>(number));
  logits = logits.first(static_cast<size_t>(choices_));
  OutputToken token = with_logprobs(id, logits, slot.sampling_params->prompt_logprobs);
  const float own = logits[static_cast<size_t>(id)];
  token.rank = 1 + std::ranges::count_if(logits, [own](float l) { return l > own; });
  // Ties rank by id.
  token.rank += std::ranges::count(logits.first(static_cast<size_t>(id)), own);
  return token;
}

bool Sampler::changes_logits(const Slot& slot, const uint32_t* mask) const {
  const SamplingParams& params = *slot.sampling_params;
  return mask != nullptr || slot.generated < params.min_tokens || params.needs_history() ||
         !params.logit_bias.empty();
}

void Sampler::change_logits(Slot& slot, const uint32_t* mask) const {
  const SamplingParams& params = *slot.sampling_params;
  const std::span<float> logits(slot.logits);
  const auto at = [&](int32_t id) -> float& { return logits[static_cast<size_t>(id)]; };
  if (mask != nullptr) apply_mask(mask, logits);
  if (slot.generated < params.min_tokens)
    for (const int32_t id : params.stop_token_ids)
      if (id < choices_) at(id) = kForbidden;
  forbid_words(params.bad_words, slot.text, logits);
  for (const auto& [id, bias] : params.logit_bias)
    if (id < choices_) at(id) += static_cast<float>(bias);
  const auto repetition = static_cast<float>(params.repetition_penalty);
  const std::array<float, 2> divisors = {1, repetition}, factors = {repetition, 1};
  for (const auto& [id, count] : slot.counts.all()) {
    if (id >= choices_) continue;
    float& l = at(id);
    // Tables instead of a branch on the logit's sign, which would be unpredictable.
    l = l / divisors[l > 0 ? 1 : 0] * factors[l > 0 ? 1 : 0];
    if (count > 0)
      l -= static_cast<float>(params.frequency_penalty * count + params.presence_penalty);
  }
}

}  // namespace trireme
