// Whether guessing pays, by how many sequences decode: measured, since it depends on model,
// machine, draft and texts.
//
// Of steps that do nothing but decode are kept, for each power of two of sequences apart, what they
// brought with guesses and without, in tokens a second: the sum of their tokens over the sum of
// their seconds, drafting included, in which older steps fade (a half after 22). gain = with /
// without, that is (1 + guesses accepted of a sequence and step) times the step's time without
// guesses over that with them. Guessing starts on. It goes off where the gain is below 1, and on
// again from kOnGain on.
//
// The other way is tried now and then: kProbe steps of it, after 32 of the usual ones at first, and
// twice as many each time that nothing changes, up to 512. The first kSettling steps after a change
// do not count: a draft model first catches up with the texts. Steps that were to have guesses and
// have none do not count either: they cost next to nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme {

// A step that has done nothing but decode.
struct DecodeTiming {
  int64_t sequences = 0;
  bool speculates = false;  // as guesses() said when it was planned
  int64_t guesses = 0;      // of all sequences
  int64_t tokens = 0;       // that it brought
  double seconds = 0;       // with the drafting
};

class SpeculationSwitch {
 public:
  static constexpr int64_t kProbe = 8, kSettling = 4, kFirstInterval = 32, kMostInterval = 512;
  static constexpr double kOnGain = 1.1;

  // Whether a step in which so many sequences decode is to have guesses.
  bool guesses(int64_t sequences) const;
  void measured(const DecodeTiming& step);

  int64_t changes() const { return changes_; }  // of all numbers of sequences
  double gain() const { return gain_; }         // as last compared; 0: never

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
    int64_t probing = 0;  // steps left of the other way
    int64_t usual = 0;    // steps of the usual way since
    int64_t interval = kFirstInterval;
  };
  static size_t index(int64_t sequences);
  void decide(Load& load);

  std::array<Load, 64> loads_;
  bool speculated_ = true;  // the step before
  int64_t settling_ = 0, changes_ = 0;
  double gain_ = 0;
};

}  // namespace trireme
