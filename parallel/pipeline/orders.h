// Instruction order of one rank in each family of schedules: pure functions of p (stages), v
// (chunks per rank), m (micro-batches) and the rank.
#pragma once

#include "parallel/pipeline/schedule.h"

namespace trireme {

using Order = std::vector<Instruction>;

// Groups of p micro-batches pass chunk 0, then chunk 1, ...; the last group may be smaller.
Order forward_only_order(int stages, int chunks, int micro_batches);
// GPipe (Huang et al. 2019, 1811.06965), backward in the order of the micro-batches.
Order gpipe_order(int micro_batches);
// PipeDream-Flush (Narayanan et al. 2021, 2006.09503).
Order one_f_one_b_order(int stages, int micro_batches, int rank);
// Narayanan et al. 2021, 2104.04473 section 2.2; stages divides micro_batches. 1F1B with one chunk.
Order interleaved_order(int stages, int chunks, int micro_batches, int rank);
// Qi et al. 2023, 2401.10241. memory: 1 for ZB-H1, 2 for ZB-H2; at most memory (p - 1) + 1
// micro-batches are in flight. The idle time is that of the paper's formulas under the conditions
// of idle_formula() (parallel/pipeline/simulate.h).
Order zero_bubble_order(int stages, int micro_batches, int rank, int memory);

}  // namespace trireme
