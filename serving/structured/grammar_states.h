// Reader states of a grammar. A reader state is the set of all ways to read the text so far; each
// way is a configuration (state of the pushdown automaton, stack of states to return to). A set
// gets a number when it is first reached, and is found again later. Its transition for a byte is
// stored once computed, so that reading the byte again is a table lookup.
//
// The bottom of a stack is the end of the text, or of a rule that is read without its callers.
// is_whole() is true if the bottom can be reached without a further byte.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "serving/structured/pushdown_automaton.h"

namespace trireme {

class GrammarStates {
 public:
  static constexpr int32_t kDead = -1;  // result of step(): no text continues with this byte
  struct Configuration {
    int32_t state = 0, stack = 0;  // stack 0: the bottom
    int32_t count = 0;             // as defined by the state's StateCounter
    auto operator<=>(const Configuration&) const = default;
  };

  // The automaton must outlive this object. reach: bytes of look-ahead that alike() preserves.
  explicit GrammarStates(const PushdownAutomaton& automaton, int32_t reach = 0);

  // Reader state at the automaton's `state` with an empty stack.
  int32_t at(int32_t state);
  // The same without the state's calls, only its own edges. count: as defined by the StateCounter.
  int32_t on_edges_of(int32_t state, int32_t count = 0);
  // Representative of a state, with the same continuations of up to `reach` bytes and the same
  // distance to the end. States have the same representative if they differ only in counts that
  // reach no bound within `reach` bytes.
  int32_t alike(int32_t state);
  // Reader state after a rule has ended and returned to `stack`, which is not the bottom.
  int32_t after_return(int32_t stack);
  // Reader state after a byte, or kDead. state: not kDead.
  int32_t step(int32_t state, uint8_t byte) {
    const int32_t next = steps_[static_cast<size_t>(state) * classes_ + class_of_[byte]];
    return next != kUnknown ? next : make_step(state, byte);
  }
  // True if step() is a table lookup.
  bool knows_step(int32_t state, uint8_t byte) const {
    return steps_[static_cast<size_t>(state) * classes_ + class_of_[byte]] != kUnknown;
  }
  bool is_whole(int32_t state) const { return whole_[static_cast<size_t>(state)] != 0; }
  bool can_continue(int32_t state) const { return !configurations(state).empty(); }
  // Configurations of a state, without those from which no byte can follow. In a kBytes state, the
  // count may still forbid every byte.
  std::span<const Configuration> configurations(int32_t state) const;
  // Bytes from the state to the end of the shortest text that continues from it; 0 if is_whole().
  int64_t bytes_to_end(int32_t state) const { return to_end_[static_cast<size_t>(state)]; }
  // The same after the return to `stack`.
  int64_t bytes_after_return(int32_t stack) const {
    return bytes_after_return_[static_cast<size_t>(stack)];
  }

  // Copy of a state that survives clear(). A frame follows the one below it. `stack` is 0 for the
  // bottom, n for frames[n - 1].
  struct Snapshot {
    std::vector<Configuration> frames = {}, configurations = {};
    bool whole = false;
  };
  Snapshot save(int32_t state) const;
  int32_t restore(const Snapshot& saved);

  int64_t bytes() const;                            // heap memory
  int64_t looked_at() const { return looked_at_; }  // configurations visited since construction
  // Forgets all states and frees their memory; earlier numbers are invalid. Allocates nothing, so
  // that it can follow std::bad_alloc, which may leave states incomplete.
  void clear() noexcept;

 private:
  static constexpr int32_t kUnknown = -2;
  // Maximum configurations of a state: above the number of rules that GrammarLimits allows a choice
  // to have. Grammars with unbounded ambiguity exceed it; further configurations are dropped, so
  // that some of their texts are rejected.
  static constexpr size_t kMaxConfigurations = 16384;
  void make_bottom();  // creates stack 0 and the first entries of the tables, unless present
  int32_t make_step(int32_t state, uint8_t byte);
  // Configuration after an edge; false: its count forbids the edge.
  bool follow(const Configuration& from, const PushdownAutomaton::Edge& edge, Configuration& to);
  bool leads_on(const Configuration& c) const;
  int32_t count_alike(int32_t state, int32_t count) const;
  int32_t push(const Configuration& frame);
  int32_t id_of(std::vector<Configuration> reached);
  int32_t number_of(std::vector<Configuration> members, bool whole);

  struct Hash {
    size_t operator()(const Configuration& c) const;
  };

  const PushdownAutomaton& automaton_;
  const int32_t reach_;
  size_t classes_ = 0;  // of bytes that no edge distinguishes
  std::vector<uint8_t> class_of_;
  std::vector<Configuration> stacks_;  // frame: returns to `state`, on top of `stack`
  std::unordered_map<Configuration, int32_t, Hash> stack_ids_;
  std::vector<int32_t> after_return_, stack_alike_;  // by stack
  std::vector<int64_t> bytes_after_return_;  // by stack: bytes to the end after returning to it
  std::unordered_map<int32_t, int32_t> at_;
  std::vector<Configuration> members_;  // configurations of all states
  std::vector<size_t> first_member_;    // (states + 1)
  std::vector<char> whole_;
  std::vector<int64_t> to_end_;
  std::vector<int32_t> alike_;
  std::vector<int32_t> steps_;  // (states, classes)
  std::unordered_multimap<uint64_t, int32_t> ids_;
  int64_t looked_at_ = 0;
};

}  // namespace trireme
