// Sampler of many sequences, each with its own SamplingParams
// (serving/scheduler/sampling_params.h).
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "serving/scheduler/scheduler_output.h"

namespace trireme {

// InputError naming the first parameter that is out of range: temperature [0, 100], top_k >= 0,
// top_p (0, 1], min_p [0, 1], typical_p (0, 1].
void check_sampling_params(const RowSamplingParams& params);

// Occurrence counts of token ids. Stored contiguously, since every sampled token reads all of them.
class TokenCounts {
 public:
  struct Count {
    int32_t id, count;
  };
  void clear();
  void add(int32_t id, int32_t count);  // adds to the count of id; a count of 0 lists the id, too
  std::span<const Count> all() const { return counts_; }  // each id once

 private:
  std::vector<Count> counts_;
  std::unordered_map<int32_t, size_t> places_;
};

class Sampler {
 public:
  // slots: maximum number of sequences. Ids from `choices` on are never sampled.
  Sampler(int64_t slots, int64_t choices);

  // Starts a sequence in a slot, in place of the slot's previous one.
  void start(const SlotStart& start);
  const SamplingParams& sampling_params(int32_t slot) const;
  int64_t choices() const { return choices_; }

  // Samples the token at `position` of the slot's sequence from its logits (V), and records it.
  // mask: bits of the allowed ids, as RuleReader::mask(); nullptr: all. Returns the id kNotFinite
  // if a logit is NaN or +infinity or all are -infinity, and kNothingLeft if every token is
  // forbidden; neither is recorded. Several threads may use different slots at the same time.
  OutputToken sample(int32_t slot, int64_t position, std::span<const float> logits,
                     const uint32_t* mask);
  // True if sample_rows(), on the device that has the logits, can replace sample(): the logits stay
  // unmodified, no top log-probabilities are reported, and typical_p, which sample_rows() lacks, is
  // 1.
  bool samples_on_device(int32_t slot, const uint32_t* mask) const;
  // Parameters for sample_rows() of such a slot, with the seed of its sequence.
  RowSamplingParams sampling(int32_t slot) const;
  // Replaces sample() for such a slot: records a token that sample_rows() has sampled.
  OutputToken record(int32_t slot, const SampledToken& token);
  // Scores a prompt token: returns its log-probability, its rank (from 1; ties by ascending id) and
  // the most probable tokens (SamplingParams::prompt_logprobs), all among the ids below `choices`.
  // logits (V).
  OutputToken score(int32_t slot, int32_t id, std::span<const float> logits) const;

 private:
  struct Slot {
    std::shared_ptr<const SamplingParams> sampling_params;
    int64_t generated = 0;
    uint64_t seed = 0;
    std::vector<int32_t> text;  // prompt and completion, if the parameters need it
    TokenCounts counts;         // occurrences in the completion; 0 for ids of the prompt only
    std::vector<float> logits;  // modified copy
  };
  bool changes_logits(const Slot& slot, const uint32_t* mask) const;
  void change_logits(Slot& slot, const uint32_t* mask) const;

  int64_t choices_;
  std::vector<Slot> slots_;
};

}  // namespace trireme
