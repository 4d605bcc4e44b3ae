// Which tokens may come next. What of it depends on a state of the automaton alone is computed once for the state
// (XGrammar: Dong et al. 2024): of the tokens, those that stay in the state's rule are allowed whatever the stack
// is. Where the rule may end within a token, the place in the trie is kept, and what is below it is looked at with
// the stack at hand; the result is kept for the reader's state.
//
// Costs O(words) for a state seen before; else a walk over what of the trie can be read, for each of the ways in which
// the text so far may be read. A grammar with very many of them is given up: no step waits for it for long.
#pragma once

#include <chrono>
#include <unordered_map>

#include "serving/structured/grammar_states.h"
#include "serving/structured/shortest_texts.h"
#include "serving/structured/token_trie.h"

namespace trireme {

class TokenMasks {
 public:
  static constexpr int64_t kMostWork = int64_t{1} << 24;
  // They must outlive this object. most_work: what work() of a mask may be.
  TokenMasks(const PushdownAutomaton& automaton, const TokenTrie& trie,
             int64_t most_work = kMostWork);

  GrammarStates& states() { return states_; }
  // Adds the bits of the tokens that can be read from there; (trie.words()). False: there is none, or finding them is
  // given up. No token is added behind which more than `most` bytes are missing
  // (GrammarStates::bytes_to_end), unless there is no other and the text may not end here: then those behind which
  // the fewest are.
  bool add(int32_t state, int64_t most, std::span<uint32_t> mask);
  // What the last call has cost: about the nodes of the trie that were looked at.
  int64_t work() const { return most_work_ - work_left_; }
  bool gave_up() const { return work_left_ < 0; }
  // Computes what depends on automaton states alone, of those that most bytes lead on from first, until the time
  // is over. False where it was given up.
  bool prepare(std::chrono::steady_clock::time_point end);
  // Whether states have become so many that they are to be forgotten: states().clear(), all numbers are void.
  bool is_full() const;
  int64_t bytes() const { return states_.bytes() + kept_bytes_ + automaton_bytes_; }
  void clear();

 private:
  // Few tokens, or a bit for each.
  struct Tokens {
    std::vector<int32_t> few;
    std::vector<uint32_t> bits;
    int64_t bytes() const { return static_cast<int64_t>(4 * (few.size() + bits.size()) + 64); }
  };
  struct StateTokens {
    Tokens inside;
    std::vector<int32_t> ends;  // nodes of the trie where the rule may end
    int64_t furthest = 0;       // bytes from behind a token inside to the end of the rule, at most
  };
  struct ReaderTokens {
    Tokens tokens;
    int64_t furthest = 0;  // bytes from behind one to the end of the text, at most
  };
  const StateTokens& of_automaton(int32_t state);
  ReaderTokens of_reader(int32_t state);
  bool add_near(int32_t state, int64_t most, std::span<uint32_t> mask);
  template <class Visit>
  void walk(int32_t state, int32_t node, Visit&& visit);
  Tokens packed(const std::vector<int32_t>& ids) const;
  static void unite(const Tokens& tokens, std::span<uint32_t> mask);

  const PushdownAutomaton& automaton_;
  const TokenTrie& trie_;
  int64_t most_work_;
  GrammarStates states_;
  std::unordered_map<int32_t, StateTokens> of_automaton_;
  std::unordered_map<int32_t, ReaderTokens> of_reader_;
  StateTokens given_up_;
  std::vector<int32_t> way_;  // states by depth in the trie
  int64_t kept_bytes_ = 0, automaton_bytes_ = 0, work_left_ = 0;
};

}  // namespace trireme
