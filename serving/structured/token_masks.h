// Token masks of a grammar: the tokens allowed next in each reader state. The part that depends
// only on an automaton state is computed once per state (XGrammar: Dong et al. 2024): tokens that
// stay within the state's rule are allowed with any stack. Where the rule may end inside a token,
// the trie node is stored, and the tokens below it are checked with the actual stack. That result
// is stored for the reader state.
//
// A mask costs O(words) for a known reader state, otherwise a walk over the readable part of the
// trie for each way to read the text so far. Work is counted in trie nodes. A mask that takes more
// than begin() allows is given up; its computed parts make a second attempt cheaper. Memory is
// charged 64 KiB ahead, since the memory that a step needs is known only after it. If the charge is
// refused, the mask is given up, too; clear() frees memory.
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
  static constexpr int64_t kMaxWork = int64_t{1} << 24;
  // Requests a total of `bytes`; false: refused. Called when the total exceeds the granted one, and
  // when it has decreased.
  using Charge = std::function<bool(int64_t bytes)>;
  // Automaton and trie must outlive this object. max_work: work limit until begin() is called.
  TokenMasks(const PushdownAutomaton& automaton, const TokenTrie& trie, int64_t max_work = kMaxWork,
             Charge charge = {});

  GrammarStates& states() { return states_; }
  // Adds the bits of the tokens that can be read from `state` to `mask` (trie.words()). False: none
  // was added, or the search was given up. Leaves out tokens after which the text needs more than
  // `most` further bytes (GrammarStates::bytes_to_end). If that leaves none and the text may not
  // end here, adds those that need the fewest.
  bool add(int32_t state, int64_t most, std::span<uint32_t> mask);
  // Sets the work limit of all following calls of step(), restore() and add() together, in trie
  // nodes.
  void begin(int64_t max_work);
  int64_t work() const { return max_work_ - work_left_; }  // since begin()
  // gave_up(): the work limit or the memory did not suffice since begin(). lacks_memory(): it was
  // the memory.
  bool gave_up() const { return work_left_ < 0; }
  bool lacks_memory() const { return lacks_memory_; }
  // Returns the state after a byte. kDead: there is none, or the search was given up.
  int32_t step(int32_t state, uint8_t byte);
  // Returns the state of a snapshot. kDead: the search was given up.
  int32_t restore(const GrammarStates::Snapshot& saved);
  // Computes the parts that depend on automaton states alone, starting with the states that accept
  // the most bytes, until max_work is spent or memory is short. False: one state alone took more
  // than kMaxWork, or its states took too much memory.
  bool prepare(int64_t max_work);
  // True if states or masks take so much memory that clear() should follow, which invalidates all
  // state numbers.
  bool is_full() const;
  int64_t bytes() const;  // heap memory
  // Frees reader states and their masks; the parts of automaton states only if memory was refused.
  // Allocates nothing.
  void clear() noexcept;

 private:
  void charge_states(int64_t looked_at_before);
  bool has_room(int64_t bytes);
  // Token set: ids if there are few, else a bit for each id.
  struct Tokens {
    std::vector<int32_t> few;
    std::vector<uint32_t> bits;
    int64_t bytes() const { return heap_bytes(few) + heap_bytes(bits); }
  };
  struct StateTokens {
    Tokens inside;
    std::vector<int32_t> ends;  // trie nodes where the rule may end
    int64_t furthest = 0;  // maximum bytes from after a token in `inside` to the end of the rule
  };
  struct ReaderTokens {
    Tokens tokens;
    int64_t furthest = 0;  // maximum bytes from after a token to the end of the text
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
  int64_t max_work_, work_left_;
  Charge charge_;
  int64_t charged_ = 0;
  bool lacks_memory_ = false;
  GrammarStates states_;
  std::unordered_map<int64_t, StateTokens> of_automaton_;  // by state and count
  std::unordered_map<int32_t, ReaderTokens> of_reader_;
  StateTokens given_up_;
  std::vector<int32_t> way_;  // reader states by depth in the trie
  int64_t kept_bytes_ = 0, automaton_bytes_ = 0;
};

}  // namespace trireme
