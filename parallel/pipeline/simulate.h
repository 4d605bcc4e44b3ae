// Simulation of a schedule over time.
//
// A rank executes its list in order. An instruction starts when the one before it has ended and its
// input has arrived: for a forward the output of the previous model chunk, for a backward the
// gradient from the next chunk and its own forward (at the last chunk: its own forward alone), for
// a backward of the weights the backward of the input. Messages take `transfer` between ranks and
// nothing within one, and no rank waits for a send.
#pragma once

#include "parallel/pipeline/schedule.h"

namespace trireme {

// Times of one chunk and one micro-batch, in any unit. A whole backward takes the sum of its
// halves.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;
  double of(InstructionKind kind) const;
};

struct Timeline {
  struct Span {
    double start = 0, end = 0;  // in the unit of StageTimes
  };
  struct Rank {
    std::vector<Span> spans;  // by instruction of schedule.ranks[rank]
    double busy = 0;
    // From the rank's first instruction to its last, less busy: its waiting time if each rank
    // starts its next step at once (an optimizer that does not wait for all ranks).
    double idle_inside = 0;
    // Largest number of (chunk, micro-batch) pairs whose forward has begun and whose backward has
    // not ended: their activations are stored. 1 in a forward-only schedule.
    int peak_in_flight = 0;
  };
  std::vector<Rank> ranks;
  double makespan = 0;  // until the last rank has ended

  double idle(int rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  // Fraction of the ranks' time from 0 to makespan that they spend waiting.
  double idle_of_total() const;
  // The same waiting time as a fraction of the busy time alone.
  double idle_of_ideal() const;
  double idle_inside_of_total() const;  // largest idle_inside / (idle_inside + busy) of a rank
};

// InputError beginning with `what` if ranks wait for each other, naming the instructions.
Timeline simulate(const Schedule& schedule, const StageTimes& times,
                  const std::string& what = "schedule");

// Idle time of rank r in closed form (2104.04473 section 2, 2401.10241 table 2). F, B and W are
// forward, backward_input and backward_weight of StageTimes; p, v and m as in schedule.h.
//   gpipe, 1f1b        (p - 1) (F + B + W)
//   interleaved_1f1b   (p - 1) (F + B + W), the times of one chunk: 1 / v of the above if each of
//                      the v chunks takes 1 / v of the time
//   zb_h1, zb_h2       (p - 1 - r) (F + B - k W), k = 1 or 2: idle_inside of rank r
// The first two rows give idle(r), the last gives idle_inside. `exact`: the schedule meets the
// formula exactly; zb requires m >= 2 p - 1, W <= F and F + B >= k W. Messages take no time.
struct IdleFormula {
  bool known = false;  // false: forward_only, custom
  bool exact = false;
  bool inside = false;
  double idle = 0;
};
IdleFormula idle_formula(const Schedule& schedule, const StageTimes& times, int rank);
// Timeline::Rank::peak_in_flight of rank r in closed form; -1 if there is none.
//   gpipe m, 1f1b min(m, p - r), zb_h1 p and zb_h2 2 p - 1 (m >= 2 p - 1),
//   interleaved_1f1b min(m v, 2 (p - 1 - r) + (v - 1) p + 1) if v > 1, else as 1f1b
int peak_in_flight_formula(const Schedule& schedule, int rank);

}  // namespace trireme
