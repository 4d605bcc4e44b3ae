// Fair sharing of sampling time between tenants (API keys). Sequences whose tokens take long to
// sample, with log-probabilities, penalties or masks over a large vocabulary, take turns; otherwise
// they would delay the tokens of every other tenant.
//
// With plain sampling a step of n sequences takes
//   plain = model(n) + n * least / threads    seconds,
// where model(n) is the step's time without sampling, least the time to sample the cheapest token,
// and threads the number of tokens sampled at the same time. While sequences of several tenants
// decode, costly sampling may add kShare * plain to a step, divided equally among the tenants with
// costly sequences. A tenant's sequences beyond its part wait for a later step, which also saves
// their part of the model's time. Those that have waited longest come first, and each tenant has at
// least one sequence in every step. A single tenant never waits. The time of a sequence without a
// measurement is estimated from another one with the same parameters, else from its tenant's recent
// ones.
//
// All times are measured: with a large model, whose step dwarfs them, no sequence waits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "serving/scheduler/sequence.h"

namespace trireme {

// Seconds of one step.
struct ChoiceTiming {
  double step = 0;      // whole step
  double choosing = 0;  // of that, spent on sampling
  int64_t sequences = 0;
  double choices = 0;    // sampling times of all sequences, added up
  bool decodes = false;  // no prompt was computed
};

class SamplingTurns {
 public:
  static constexpr double kShare = 0.3;
  static constexpr int64_t kMinPromptRows = 8;

  void measured(const ChoiceTiming& timing);
  // Records the sampling time of one token.
  void measured_choice(const Sequence& sequence, double seconds);
  // Begins a step. decoding: all sequences that may get a token in it.
  void begin(std::span<Sequence* const> decoding);
  // True for a decoding sequence that is left out of this step.
  bool waits(const Sequence& sequence) const { return waiting_.contains(&sequence); }
  // Reserves sampling time for a sequence that would start in this step; false: none is left. In
  // each step a tenant may always start one sequence, and may start none after a refused one.
  bool take(const Sequence& sequence);
  // Reserves time for up to `rows` prompt log-probabilities; returns how many, at least
  // min(rows, kMinPromptRows).
  int64_t take_prompt_rows(const Sequence& sequence, int64_t rows);

 private:
  using Members = std::vector<Sequence*>;
  // Step time at 2^i to 2^(i + 1) - 1 sequences, smoothed.
  struct Level {
    double sequences = 0, seconds = 0;  // without sampling; 0: not measured yet
  };
  double choice_of(const Sequence& sequence) const;
  double seconds_of(const Sequence& sequence) const {
    return row_ + choice_of(sequence) / threads_;
  }
  double plain_of(int64_t sequences);
  void choose(Members& members, double room);
  bool is_free(const Sequence& sequence) const;

  std::array<Level, 24> levels_ = {};
  double threads_ = 1;  // choices / choosing, smoothed
  // Current step.
  bool bounded_ = false;
  double least_ = 0;  // seconds to sample the cheapest token
  double row_ = 0;    // seconds of model time per additional sequence
  double room_ = 0;   // seconds that one tenant's costly sampling may add
  std::unordered_map<const SamplingParams*, double> of_choice_;
  std::unordered_set<const Sequence*> waiting_;
  struct Room {
    double left = 0;                        // seconds
    bool started = false, refused = false;  // by take() in this step
  };
  std::map<std::string, Room> rooms_;     // by tenant
  std::map<std::string, double> recent_;  // sampling seconds per token by tenant, smoothed
  uint64_t step_ = 0;
};

}  // namespace trireme
