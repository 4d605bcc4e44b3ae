// Shortest distance in bytes from each state to the end of its rule, by Dijkstra's algorithm for
// grammars (Knuth 1977). The length of a call is that of the shortest text of the called rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "serving/structured/automaton_state.h"

namespace trireme {

inline constexpr int64_t kNeverEnds = int64_t{1} << 50;  // finite distances are capped below it

inline int64_t sum_of_bytes(int64_t a, int64_t b) {
  return a == kNeverEnds || b == kNeverEnds ? kNeverEnds : std::min(a + b, kNeverEnds - 1);
}

// Returns the distance of each state, kNeverEnds if it cannot reach the end of its rule. starts:
// start state of each rule. Counters are ignored. O((edges + calls) log states).
std::vector<int64_t> bytes_to_end(std::span<const AutomatonState> states,
                                  std::span<const int32_t> starts);

}  // namespace trireme
