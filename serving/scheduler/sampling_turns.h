// Turns of the sequences of one tenant (API key) whose tokens take long to choose: with
// log-probabilities, penalties or masks over a large vocabulary. Without turns they hold up the
// tokens of every other tenant.
//
// With plain sampling a step of n sequences takes
//   plain = model(n) + n * least / threads    seconds,
// where model(n) is the time of such a step without choosing, least that of the cheapest of the
// choices, and threads how many are made at the same time. While sequences of several tenants
// decode, costly choices may add kShare * plain to a step, in equal parts for the tenants that have
// some. Sequences beyond that wait for one of the next steps, those first that have waited longest,
// which spares the model's part of the step, too; each tenant has at least one in every step. A
// tenant alone never waits. Where no choice of a sequence was measured yet it is taken for one with
// the same parameters, else for the tenant's last ones.
//
// All times are measured: beside a large model, which dwarfs them, no sequence waits.
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

// Seconds of a step.
struct ChoiceTiming {
  double step = 0;      // all of it
  double choosing = 0;  // of them those in which tokens were chosen
  int64_t sequences = 0;
  double choices = 0;    // of all choices one after the other
  bool decodes = false;  // no prompt was computed
};

class SamplingTurns {
 public:
  static constexpr double kShare = 0.3;
  static constexpr int64_t kMinPromptRows = 8;

  void measured(const ChoiceTiming& timing);
  // The choice of a token took so long.
  void measured_choice(const Sequence& sequence, double seconds);
  // Begins a step. decoding: all sequences that may have a token in it.
  void begin(std::span<Sequence* const> decoding);
  // Whether one of them is left out of this step.
  bool waits(const Sequence& sequence) const { return waiting_.contains(&sequence); }
  // Whether there is time for the choice of a sequence that would start in this step; it is taken.
  // One of each tenant may start, and none after one that may not.
  bool take(const Sequence& sequence);
  // How many of `rows` log-probabilities of a prompt there is time for; it is taken. At least
  // kMinPromptRows of them.
  int64_t take_prompt_rows(const Sequence& sequence, int64_t rows);

 private:
  using Members = std::vector<Sequence*>;
  // Of steps of 2^i to 2^(i + 1) - 1 sequences, smoothed.
  struct Level {
    double sequences = 0, seconds = 0;  // without choosing; 0: none was measured
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
  // Of the step that was begun.
  bool bounded_ = false;
  double least_ = 0;  // seconds of the cheapest choice
  double row_ = 0;    // seconds that the model needs for one sequence more
  double room_ = 0;   // seconds that costly choices of one tenant may add
  std::unordered_map<const TokenChoice*, double> of_choice_;
  std::unordered_set<const Sequence*> waiting_;
  struct Room {
    double left = 0;                        // seconds
    bool started = false, refused = false;  // a sequence that would start
  };
  std::map<std::string, Room> rooms_;     // by tenant
  std::map<std::string, double> recent_;  // seconds of a tenant's choices, smoothed
  uint64_t step_ = 0;
};

}  // namespace trireme
