#include "parallel/comm/mpi/mpi_own.h"

#include <mpi.h>

#include "engine/core/tensor.h"

namespace trireme {

void mpi_own_collective(CommKind kind, float* out, const float* in, int64_t n) {
  const MPI_Comm world = MPI_COMM_WORLD;
  int rank = 0, ranks = 1;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &ranks);
  const int whole = narrow<int>(n), part = whole / ranks;
  // This communicator has MPI's default error handler: a failure ends the program.
  switch (kind) {
    case CommKind::kAllReduce:
      MPI_Allreduce(MPI_IN_PLACE, out, whole, MPI_FLOAT, MPI_SUM, world);
      break;
    case CommKind::kAllGather:
      MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world);
      break;
    case CommKind::kReduceScatter:
      MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, world);
      break;
    case CommKind::kBroadcast: MPI_Bcast(out, whole, MPI_FLOAT, 0, world); break;
    case CommKind::kAllToAll: MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, world); break;
    case CommKind::kSend:
      MPI_Sendrecv(in, whole, MPI_FLOAT, (rank + 1) % ranks, 0, out, whole, MPI_FLOAT,
                   (rank + ranks - 1) % ranks, 0, world, MPI_STATUS_IGNORE);
      break;
    default: TRIREME_UNREACHABLE(comm_kind_name(kind), " is not compared with MPI");
  }
}

}  // namespace trireme
