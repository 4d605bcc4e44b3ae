// Fair sharing of sampling time between tenants (API keys). Log-probabilities, penalties or masks
// over a large vocabulary make a token slow to sample, and every sequence of the step waits for it.
// Such sequences take turns, so that they do not delay the tokens of other tenants.
//
// With plain sampling a step of n sequences takes
//
//   plain = model(n) + n * least / threads    seconds,
//
// where model(n) is the step's time without sampling, least the time to sample the cheapest token,
// and threads the number of tokens sampled in parallel. While sequences of several tenants decode,
// costly sampling may add kShare * plain seconds to a step, divided equally among the tenants with
// costly sequences. A tenant whose sequences would add more than its part has, for all of their
// time, that part plus their plain time: its sequences run, those that have waited longest first,
// until this is used up, and the others wait for a later step. Each tenant has at least one
// sequence in every step, and a single tenant never waits.
//
// A sequence that has not been measured is assumed to take as long as another one with the same
// parameters, else as long as its tenant's recent tokens, else as long as the cheapest token.
//
// All times are measured. With a large model sampling is short compared with the step, and no
// sequence waits.
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

// Sampling times of one step, in seconds.
struct SamplingTiming {
  double step = 0;      // whole step, wall clock
  double sampling = 0;  // part of that in which the executor only sampled, wall clock
  int64_t sequences = 0;
  // Sum of the sampling times of all sequences: above `sampling` if threads sample in parallel.
  double sequence_sum = 0;
  bool decodes = false;  // no prompt was computed
};

class SamplingTurns {
 public:
  static constexpr double kShare = 0.3;
  static constexpr int64_t kMinPromptRows = 8;

  void measured(const SamplingTiming& timing);
  // Records the sampling time of one token.
  void measured_token(const Sequence& sequence, double seconds);
  // Begins a step and selects the sequences that wait. decoding: all that could get a token in it.
  void begin(std::span<Sequence* const> decoding);
  // True for a decoding sequence that is left out of this step.
  bool waits(const Sequence& sequence) const { return waiting_.contains(&sequence); }
  // Reserves sampling time for a sequence that would start in this step; false: none is left. A
  // tenant may always start one sequence per step. After a refusal it starts no other one in this
  // step.
  bool take(const Sequence& sequence);
  // Reserves time for prompt log-probabilities. Returns their number, from min(rows,
  // kMinPromptRows) to `rows`.
  int64_t take_prompt_rows(const Sequence& sequence, int64_t rows);

 private:
  using Members = std::vector<Sequence*>;
  // Step time at 2^i to 2^(i + 1) - 1 sequences, smoothed.
  struct Level {
    double sequences = 0, seconds = 0;  // without sampling; 0: not measured yet
  };
  double sampling_seconds_of(const Sequence& sequence) const;
  double seconds_of(const Sequence& sequence) const {
    return row_ + sampling_seconds_of(sequence) / threads_;
  }
  double plain_of(int64_t sequences);
  void choose(Members& members, double room);
  bool is_free(const Sequence& sequence) const;

  std::array<Level, 24> levels_ = {};
  double threads_ = 1;  // sequence_sum / sampling, smoothed
  // Current step.
  bool bounded_ = false;
  double least_ = 0;  // seconds to sample the cheapest token
  double row_ = 0;    // seconds of model time per additional sequence
  double room_ = 0;   // seconds that one tenant's costly sampling may add
  std::unordered_map<const SamplingParams*, double> of_params_;
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
