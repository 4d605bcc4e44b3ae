// The MPI library's own collectives over all ranks, to compare ours with (`trireme bench comm`).
// Only in a world whose backend is "mpi", and only while no operation of ours is under way.
#pragma once

#include "parallel/comm/liveness/traffic.h"

namespace trireme {

// float32, sums. n: elements of the larger operand, a multiple of the ranks, below 2^31.
//   kAllReduce      out (n) in place          kAllGather   out (n) from in (n / ranks)
//   kReduceScatter  out (n / ranks) from in   kAllToAll    out (n) from in (n)
//   kBroadcast      out (n) from rank 0       kSend        in (n) to the next rank, out from the one before
void mpi_own_collective(CommKind kind, float* out, const float* in, int64_t n);

}  // namespace trireme
