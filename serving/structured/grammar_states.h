// All ways in which a text so far may be read, as numbers: a state of the reader is a set of (state
// of the pushdown automaton, stack of states to return to), made when it is first reached and found
// again when it is reached again, with what each byte leads to. Reading a byte is a look into a
// table then.
//
// A stack's bottom is the end of the text, or of a part whose surroundings are not known:
// is_whole() tells that it is reached.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "serving/structured/pushdown_automaton.h"

namespace trireme {

class GrammarStates {
 public:
  static constexpr int32_t kDead = -1;
  struct Configuration {
    int32_t state = 0, stack = 0;  // stack 0: the bottom
    int32_t count = 0;             // as the state's StateCounter says
    auto operator<=>(const Configuration&) const = default;
  };

  // The automaton must outlive this object. reach: bytes that alike() looks ahead.
  explicit GrammarStates(const PushdownAutomaton& automaton, int32_t reach = 0);

  // The state of one who is at the automaton's `state` with nothing to return to.
  int32_t at(int32_t state);
  // The same of one who calls no rule there: what its own edges lead to.
  int32_t on_edges_of(int32_t state, int32_t count = 0);
  // A state with the same texts of up to `reach` bytes ahead, and as many bytes to its end: one for
  // all counts that are further from their bounds.
  int32_t alike(int32_t state);
  // Of one whose rule has ended with this stack, which is not the bottom.
  int32_t behind(int32_t stack);
  int32_t step(int32_t state, uint8_t byte) {
    const int32_t next = steps_[static_cast<size_t>(state) * classes_ + class_of_[byte]];
    return next != kUnknown ? next : make_step(state, byte);
  }
  // Whether step() is a look into the table.
  bool knows_step(int32_t state, uint8_t byte) const {
    return steps_[static_cast<size_t>(state) * classes_ + class_of_[byte]] != kUnknown;
  }
  bool is_whole(int32_t state) const { return whole_[static_cast<size_t>(state)] != 0; }
  bool can_go_on(int32_t state) const { return !configurations(state).empty(); }
  // With edges all.
  std::span<const Configuration> configurations(int32_t state) const;
  // Of the shortest text that ends there what is missing.
  int64_t bytes_to_end(int32_t state) const { return to_end_[static_cast<size_t>(state)]; }
  int64_t bytes_behind(int32_t stack) const { return behind_end_[static_cast<size_t>(stack)]; }

  // A state by itself, for when all are forgotten. Frames follow those they return to; `stack` 0 is
  // the bottom, n the n-th frame.
  struct Snapshot {
    std::vector<Configuration> frames = {}, configurations = {};
    bool whole = false;
  };
  Snapshot save(int32_t state) const;
  int32_t restore(const Snapshot& saved);

  int64_t bytes() const;                            // of the heap that all this holds
  int64_t looked_at() const { return looked_at_; }  // readings, since the beginning
  // Forgets all states and frees their memory; earlier numbers mean nothing any more. It takes no
  // memory, so that it can follow std::bad_alloc, after which states may be half made.
  void clear() noexcept;

 private:
  static constexpr int32_t kUnknown = -2;
  // Readings at a time: more than GrammarLimits leaves rules to choose from. Grammars that are
  // ambiguous without end have more; further ones are not followed, so that some of their texts are
  // not found.
  static constexpr size_t kMostConfigurations = 16384;
  void make_bottom();  // the stack 0 and the places of the first state, where they are not yet
  int32_t make_step(int32_t state, uint8_t byte);
  // The configuration behind an edge of one; false: its count forbids the edge.
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
  size_t classes_ = 0;  // of bytes that no edge tells apart
  std::vector<uint8_t> class_of_;
  std::vector<Configuration> stacks_;  // returns to `state`, above `stack`
  std::unordered_map<Configuration, int32_t, Hash> stack_ids_;
  std::vector<int32_t> behind_, stack_alike_;  // by stack
  std::vector<int64_t> behind_end_;  // by stack: bytes to the end of all that is returned to
  std::unordered_map<int32_t, int32_t> at_;
  std::vector<Configuration> members_;  // of all states
  std::vector<size_t> first_member_;    // (states + 1)
  std::vector<char> whole_;
  std::vector<int64_t> to_end_;
  std::vector<int32_t> alike_;
  std::vector<int32_t> steps_;  // (states, classes)
  std::unordered_multimap<uint64_t, int32_t> ids_;
  int64_t looked_at_ = 0;
};

}  // namespace trireme
