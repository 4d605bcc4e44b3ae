// Which tokens may come next. What of it depends on a state of the automaton alone is computed once
// for the state (XGrammar: Dong et al. 2024): of the tokens, those that stay in the state's rule
// are allowed whatever the stack is. Where the rule may end within a token, the place in the trie
// is kept, and what is below it is looked at with the stack at hand; the result is kept for the
// reader's state.
//
// Costs O(words) for a state seen before; else a walk over what of the trie can be read, for each
// of the ways in which the text so far may be read. Work is counted, in nodes of the trie, and a
// mask that takes more than begin() allows is given up; what has been found until then is kept, and
// makes a second attempt cheaper. Memory is charged before it is taken; where that is refused the
// mask is given up, too, and clear() makes room.
#pragma once

#include <functional>
#include <unordered_map>

#include "engine/core/heap_bytes.h"
#include "serving/structured/grammar_states.h"
#include "serving/structured/shortest_texts.h"
#include "serving/structured/token_trie.h"

namespace trireme {

class TokenMasks {
 public:
  static constexpr int64_t kMostWork = int64_t{1} << 24;
  // Whether so many bytes may be held in all; asked when they are more than at the last time, told
  // when they are fewer.
  using Charge = std::function<bool(int64_t bytes)>;
  // Automaton and trie must outlive this object. most_work: what the first mask may take.
  TokenMasks(const PushdownAutomaton& automaton, const TokenTrie& trie,
             int64_t most_work = kMostWork, Charge charge = {});

  GrammarStates& states() { return states_; }
  // Adds the bits of the tokens that can be read from there; (trie.words()). False: there is none,
  // or finding them is given up. No token is added behind which more than `most` bytes are missing
  // (GrammarStates::bytes_to_end), unless there is no other and the text may not end here: then
  // those behind which the fewest are.
  bool add(int32_t state, int64_t most, std::span<uint32_t> mask);
  // What step() and add() may cost together from now on.
  void begin(int64_t most_work);
  int64_t work() const { return most_work_ - work_left_; }  // since then
  // Work or memory did not suffice since then.
  bool gave_up() const { return work_left_ < 0; }
  bool lacks_memory() const { return lacks_memory_; }
  // The state behind a byte. kDead: there is none, or it is given up.
  int32_t step(int32_t state, uint8_t byte);
  int32_t restore(const GrammarStates::Snapshot& saved);
  // Computes what depends on automaton states alone, of those that most bytes lead on from first,
  // until it has cost so much or memory is short. False where it was given up.
  bool prepare(int64_t most_work);
  // Whether states have become so many that they are to be forgotten: states().clear(), all numbers
  // are void.
  bool is_full() const;
  int64_t bytes() const;  // of the heap
  void clear() noexcept;  // takes no memory

 private:
  void charge_states(int64_t looked_at_before);
  bool has_room(int64_t bytes);
  // Few tokens, or a bit for each.
  struct Tokens {
    std::vector<int32_t> few;
    std::vector<uint32_t> bits;
    int64_t bytes() const { return heap_bytes(few) + heap_bytes(bits); }
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
  const StateTokens& of_automaton(int32_t state, int32_t count);
  ReaderTokens of_reader(int32_t state);
  bool add_of(const ReaderTokens& of, int32_t state, int64_t most, std::span<uint32_t> mask);
  bool add_near(int32_t state, int64_t most, std::span<uint32_t> mask);
  template <class Visit>
  void walk(int32_t state, int32_t node, Visit&& visit);
  Tokens packed(const std::vector<int32_t>& ids) const;
  static void unite(const Tokens& tokens, std::span<uint32_t> mask);

  const PushdownAutomaton& automaton_;
  const TokenTrie& trie_;
  int64_t most_work_, work_left_;
  Charge charge_;
  int64_t charged_ = 0;
  bool lacks_memory_ = false;
  GrammarStates states_;
  std::unordered_map<int64_t, StateTokens> of_automaton_;  // by state and count
  std::unordered_map<int32_t, ReaderTokens> of_reader_;
  StateTokens given_up_;
  std::vector<int32_t> way_;  // states by depth in the trie
  int64_t kept_bytes_ = 0, automaton_bytes_ = 0;
};

}  // namespace trireme
