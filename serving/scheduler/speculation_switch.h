// Switches speculation on and off by measured throughput, for each number of decoding sequences:
// whether it pays depends on model, machine, drafter and text.
//
// For each power of two of sequences, the throughput of steps that only decode is kept with and
// without drafts, in tokens a second: the sum of their tokens over the sum of their seconds,
// drafting included, with older steps decaying (half after 22 steps). gain = with / without, that
// is (1 + accepted draft tokens per sequence and step) times the step time without drafts over that
// with drafts. Speculation starts on; it is switched off where the gain is below 1, and on again
// from kOnGain.
//
// The other mode is probed for kProbe steps after an interval of kFirstInterval steps in the
// current one; the interval doubles after each probe without a change, up to kMaxInterval. The
// first kSettling steps after a change of mode do not count, since a draft model first catches up
// with the sequences. Steps of the drafting mode that got no draft do not count either: they cost
// next to nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme {

// Timing of a step that only decoded.
struct DecodeTiming {
  int64_t sequences = 0;
  bool speculates = false;   // value of `should_draft()` when it was planned
  int64_t draft_tokens = 0;  // draft tokens of all sequences
  int64_t tokens = 0;        // sampled tokens that count
  double seconds = 0;        // drafting included
};

class SpeculationSwitch {
 public:
  static constexpr int64_t kProbe = 8, kSettling = 4, kFirstInterval = 32, kMaxInterval = 512;
  static constexpr double kOnGain = 1.1;

  // True if a step with this number of decoding sequences should have drafts.
  bool should_draft(int64_t sequences) const;
  void measured(const DecodeTiming& step);

  int64_t changes() const { return changes_; }  // times switched, all loads together
  double gain() const { return gain_; }         // last compared, of any load; 0: none yet

 private:
  struct Rate {
    double tokens = 0, seconds = 0;
    int64_t steps = 0;
    void add(const DecodeTiming& step);
    double value() const { return tokens / seconds; }
  };
  struct Load {
    Rate with, without;
    bool on = true;
    int64_t probing = 0;  // steps left of the current probe
    int64_t usual = 0;    // steps since the last probe
    int64_t interval = kFirstInterval;
  };
  static size_t index(int64_t sequences);
  void decide(Load& load);

  std::array<Load, 64> loads_;
  bool speculated_ = true;  // in the previous step
  int64_t settling_ = 0, changes_ = 0;
  double gain_ = 0;
};

}  // namespace trireme
