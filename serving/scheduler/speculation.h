// Guessing the next tokens of a text, to verify several in one step (speculative decoding:
// Leviathan, Kalman and Matias 2023; guesses from the text itself: Saxena 2023, "Prompt Lookup
// Decoding"; of a second model: model_drafter.h).
//
// A step computes the last token of a sequence and `drafts` guesses behind it, and the token at
// each of these positions is chosen as it would be without guesses. As long as the chosen token is
// the guessed one the next position's logits are those of the text and its choice counts; from the
// first other one on they are not, and are dropped. What is chosen at a position is a function of
// the seed, the position and the logits (engine/ops/sample.h), so the text is the same with guesses
// and without them, greedy or drawn: nothing of the distribution is to be corrected, and no draft
// needs probabilities of its own. The keys of dropped tokens are overwritten when their positions
// are computed again.
//
// A guess costs a row in a step. That is almost nothing where few sequences run, since a step reads
// all weights anyway, and as much as another sequence's token where many do: with more than
// most_sequences nobody guesses, and with fewer only where that has not been slower
// (speculation_switch.h). A sequence whose guesses come true is given more, up to `tokens`; where
// none does, half as many, and after one that fails alone nothing is guessed for kRest tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

struct SpeculationConfig {
  int64_t tokens = 0;           // guessed at a time at most; 0: none
  int64_t longest = 4;          // the end of the text that is looked for before: so many tokens, or
  int64_t shortest = 2;         // fewer, at least so many
  int64_t most_sequences = 32;  // running: with more nobody guesses
};

// What followed where the text's last tokens were before: the longest such end, the latest place;
// at most `count` tokens, none where there is no such place. Looks back kLookBack tokens.
inline constexpr int64_t kLookBack = 1 << 14;
std::vector<int32_t> guess_from_text(std::span<const int32_t> text, const SpeculationConfig& config,
                                     int64_t count);

// How many guesses a sequence is given.
class GuessAllowance {
 public:
  int64_t allowed(const SpeculationConfig& config) const;
  void verified(int64_t guessed, int64_t accepted, const SpeculationConfig& config);
  void without() { rest_ -= rest_ > 0 ? 1 : 0; }  // a token came without guesses

 private:
  static constexpr int64_t kRest = 32;
  int64_t allowed_ = -1;  // -1: nothing is known, all
  int64_t rest_ = 0;
};

}  // namespace trireme
