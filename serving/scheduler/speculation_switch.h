// Speculation switch: turns speculation on and off by measured throughput, separately by the number
// of decoding sequences. The gain of speculation depends on model, machine, drafter and text.
//
// For each power of two of sequences, the throughput with and without drafts is tracked in tokens
// per second: the sum of tokens over the sum of seconds, drafting included, of steps that only
// decode. Older steps decay (half after 22 steps). The gain is
//
//   throughput with drafts / throughput without
//   = (1 + accepted draft tokens per sequence and step) * step time without drafts / with drafts
//
// Speculation starts on. It is switched off where the gain is below 1, and on again from kOnGain.
//
// After an interval of steps in the current mode, the other mode is probed for kProbe steps. The
// interval is kFirstInterval steps at first, and doubles up to kMaxInterval after each probe that
// changes nothing. The first kSettling steps after a change of mode do not count, since a draft
// model first catches up with the sequences. Steps of the drafting mode that got no draft do not
// count either: they cost next to nothing.
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

  int64_t changes() const { return changes_; }  // number of switches, at all loads
  double gain() const { return gain_; }         // last one measured, at any load; 0: none yet

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
