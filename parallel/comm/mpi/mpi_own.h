// Collectives of the MPI library itself over all ranks, for comparison (`trireme bench comm`). Only
// in a world whose backend is "mpi", and only while none of our operations is in progress. An MPI
// error ends the program.
#pragma once

#include "parallel/comm/liveness/traffic.h"

namespace trireme {

// Sums in float32. n: elements of the larger operand, below 2^31 and a multiple of the number of
// ranks.
//   kAllReduce      out (n) in place          kAllGather   out (n) from in (n / ranks)
//   kReduceScatter  out (n / ranks) from in   kAllToAll    out (n) from in (n)
//   kBroadcast      out (n) from rank 0
//   kSend           in (n) to the next rank, out (n) from the previous one
void mpi_own_collective(CommKind kind, float* out, const float* in, int64_t n);

}  // namespace trireme
