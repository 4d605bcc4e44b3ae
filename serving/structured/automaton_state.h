// State of a pushdown automaton (pushdown_automaton.h).
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

struct AutomatonState {
  struct Edge {
    uint8_t first = 0, last = 0;  // bytes
    int32_t target = 0;
  };
  struct Call {
    int32_t rule = 0, target = 0;
  };
  std::vector<Edge> edges;  // ascending, disjoint
  std::vector<Call> calls;  // of different rules
  bool final = false;
};

}  // namespace trireme
