// Which tokens may come next. What of it depends on a state of the automaton alone is computed once for the state
// (XGrammar: Dong et al. 2024): of the tokens, those that stay in the state's rule are allowed whatever the stack
// is. Where the rule may end within a token, the place in the trie is kept, and what is below it is looked at with
// the stack at hand; the result is kept for the reader's state.
//
// Costs O(words) for a state seen before; else a walk over what of the trie can be read.
#pragma once

#include <unordered_map>

#include "serving/structured/grammar_states.h"
#include "serving/structured/token_trie.h"

namespace trireme {

class TokenMasks {
 public:
  // They must outlive this object.
  TokenMasks(const PushdownAutomaton& automaton, const TokenTrie& trie);

  GrammarStates& states() { return states_; }
  // Adds the bits of the tokens that can be read from there; (trie.words()). False: there is none.
  bool add(int32_t state, std::span<uint32_t> mask);
  // Computes what depends on automaton states alone, of those that most bytes lead on from first, until the time
  // is over.
  void prepare(std::chrono::steady_clock::time_point end);
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
  };
  const StateTokens& of_automaton(int32_t state);
  template <class Visit>
  void walk(int32_t state, int32_t node, std::vector<int32_t>& found, Visit&& at_end);
  Tokens packed(const std::vector<int32_t>& ids) const;
  static void unite(const Tokens& tokens, std::span<uint32_t> mask);

  const PushdownAutomaton& automaton_;
  const TokenTrie& trie_;
  GrammarStates states_;
  std::unordered_map<int32_t, StateTokens> of_automaton_;
  std::unordered_map<int32_t, Tokens> of_reader_;
  std::vector<int32_t> way_;  // states by depth in the trie
  int64_t kept_bytes_ = 0, automaton_bytes_ = 0;
};

}  // namespace trireme
