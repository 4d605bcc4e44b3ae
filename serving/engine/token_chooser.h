// Chooses the tokens of many sequences, each in its own way (serving/scheduler/token_choice.h).
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "serving/scheduler/step_plan.h"

namespace trireme {

// InputError naming the parameter that is out of range.
void check_sampling_params(const SamplingParams& params);

// Occurrences of each id, contiguous: a step of a long text reads them all.
class TokenCounts {
 public:
  struct Count {
    int32_t id, count;
  };
  void clear();
  void add(int32_t id, int32_t count);
  std::span<const Count> all() const { return counts_; }

 private:
  std::vector<Count> counts_;
  std::unordered_map<int32_t, size_t> places_;
};

class TokenChooser {
 public:
  // slots: sequences at a time. Ids from `choices` on are never chosen.
  TokenChooser(int64_t slots, int64_t choices);

  // A sequence enters a slot; whatever was there is forgotten.
  void start(const SlotStart& start);
  const TokenChoice& choice(int32_t slot) const;
  int64_t choices() const { return choices_; }

  // The token that stands at `position` of the slot's sequence, from the logits before it (V);
  // remembered as a part of its text. mask: bits of the ids that may be chosen; nullptr: all. Id
  // kNotFinite where logits are not finite, kNothingLeft where all tokens are forbidden. Slots are
  // independent: several threads may choose for different ones.
  ChosenToken choose(int32_t slot, int64_t position, std::span<const float> logits,
                     const uint32_t* mask);
  // Whether choose() would take the token by its sampling parameters alone, from logits as they
  // are, and tell nothing of others: sample_rows() then does the same where the logits are.
  bool chooses_by_sampling(int32_t slot, const uint32_t* mask) const;
  // Of such a slot, with the seed of its sequence.
  SamplingParams sampling(int32_t slot) const;
  // In the place of choose(): what sample_rows() has chosen.
  ChosenToken chosen(int32_t slot, const SampledToken& token);
  // What the slot's choice tells of a token of the prompt.
  ChosenToken score(int32_t slot, int32_t id, std::span<const float> logits) const;

 private:
  struct Slot {
    std::shared_ptr<const TokenChoice> choice;
    int64_t generated = 0;
    uint64_t seed = 0;
    std::vector<int32_t> text;  // prompt and text, where the choice needs it
    TokenCounts counts;         // of the ids in it: 0 of those in the prompt alone
    std::vector<float> logits;  // changed
  };
  bool changes_logits(const Slot& slot, const uint32_t* mask) const;
  void change_logits(Slot& slot, const uint32_t* mask) const;

  int64_t choices_;
  std::vector<Slot> slots_;
};

}  // namespace trireme
