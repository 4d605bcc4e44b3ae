// Speculative decoding (Leviathan, Kalman and Matias 2023): a drafter proposes the next tokens of a
// sequence, and one step verifies them. Drafters: prompt lookup in the sequence itself (Saxena
// 2023, "Prompt Lookup Decoding"), or a draft model (model_drafter.h).
//
// A step computes the last token of a sequence followed by its draft tokens, and samples at each of
// these positions as it would without a draft. As long as the sampled token equals the draft token,
// the logits of the next position are valid and its sample counts. All samples after the first
// mismatch are dropped; their keys are overwritten when the positions are computed again. A sample
// is a function of the seed, the position and the logits (engine/ops/sampling/sample.h), so the
// output is the same with and without speculation, greedy or not. There is no rejection sampling,
// and drafts need no probabilities.
//
// A draft token costs a row of a step. With few running sequences that is almost free, since a step
// reads all weights in any case; with many it costs as much as another sequence's token. So nothing
// is drafted above max_running_sequences, nor where drafting has proved slower
// (speculation_switch.h). The allowance of a sequence doubles, up to `tokens`, when its whole draft
// is accepted, and halves, down to 1, when none of it is. If none is accepted at an allowance of 1,
// the sequence drafts nothing for kRest tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

struct SpeculationConfig {
  int64_t tokens = 0;             // maximum draft tokens per sequence and step; 0: no speculation
  int64_t prompt_lookup_max = 4;  // maximum length of the suffix that prompt lookup searches for
  int64_t prompt_lookup_min = 2;  // minimum length of that suffix
  int64_t max_running_sequences = 32;  // nothing is drafted while more are running
};

// Prompt lookup: at most `count` tokens that followed an earlier occurrence of a suffix of `text`.
// The occurrence ends within the last kLookBack tokens. The longest suffix is preferred, then the
// latest occurrence. Empty if there is no such occurrence.
inline constexpr int64_t kLookBack = 1 << 14;
std::vector<int32_t> draft_from_text(std::span<const int32_t> text, const SpeculationConfig& config,
                                     int64_t count);

// Number of draft tokens that a sequence may have, adapted to their acceptance.
class DraftAllowance {
 public:
  int64_t allowed(const SpeculationConfig& config) const;
  void verified(int64_t drafted, int64_t accepted, const SpeculationConfig& config);
  void without() { rest_ -= rest_ > 0 ? 1 : 0; }  // a token was sampled without a draft

 private:
  static constexpr int64_t kRest = 32;
  int64_t allowed_ = -1;  // -1: no draft verified yet, `tokens` are allowed
  int64_t rest_ = 0;
};

}  // namespace trireme
