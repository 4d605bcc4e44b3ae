/* Counts the bytes a program gives to MPI's sends, independently of what the program says.
 *
 * Preload this library under mpirun (mpirun -x LD_PRELOAD=...). At MPI_Finalize each rank writes
 *   {"rank": 0, "calls": 12, "bytes": 4096}
 * to <PMPI_COUNT_PREFIX>.<rank>.json; without that variable nothing is written. MPI_Pcontrol(0)
 * sets the counters to zero, so that a program can leave out its start.
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_llong g_calls;
static atomic_llong g_bytes;

static void count(int elements, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  atomic_fetch_add(&g_calls, 1);
  atomic_fetch_add(&g_bytes, (long long)elements * size);
}

#define COUNTED_SEND(name)                                                                     \
  int MPI_##name(const void* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) { \
    count(n, type);                                                                            \
    return PMPI_##name(data, n, type, to, tag, comm);                                          \
  }
COUNTED_SEND(Send)
COUNTED_SEND(Bsend)
COUNTED_SEND(Ssend)
COUNTED_SEND(Rsend)

#define COUNTED_ISEND(name)                                                                    \
  int MPI_##name(const void* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,   \
                 MPI_Request* request) {                                                       \
    count(n, type);                                                                            \
    return PMPI_##name(data, n, type, to, tag, comm, request);                                 \
  }
COUNTED_ISEND(Isend)
COUNTED_ISEND(Ibsend)
COUNTED_ISEND(Issend)
COUNTED_ISEND(Irsend)

int MPI_Sendrecv(const void* out, int n, MPI_Datatype type, int to, int out_tag, void* in, int m,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
  count(n, type);
  return PMPI_Sendrecv(out, n, type, to, out_tag, in, m, in_type, from, in_tag, comm, status);
}

int MPI_Pcontrol(const int level, ...) {
  if (level == 0) {
    atomic_store(&g_calls, 0);
    atomic_store(&g_bytes, 0);
  }
  return MPI_SUCCESS;
}

int MPI_Finalize(void) {
  const char* prefix = getenv("PMPI_COUNT_PREFIX");
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (prefix != NULL) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d.json", prefix, rank);
    FILE* file = fopen(path, "w");
    if (file != NULL) {
      fprintf(file, "{\"rank\": %d, \"calls\": %lld, \"bytes\": %lld}\n", rank,
              (long long)atomic_load(&g_calls), (long long)atomic_load(&g_bytes));
      fclose(file);
    }
  }
  return PMPI_Finalize();
}
