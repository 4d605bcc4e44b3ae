// Stubs for -DTRIREME_MPI=OFF: the functions of parallel/comm/mpi/ refuse with an InputError.
#include "parallel/comm/mpi/mpi_own.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

bool has_mpi() { return false; }

std::unique_ptr<Transport> make_mpi_transport() { fail_input(kWithoutMpi); }

void mpi_own_collective(CommKind, float*, const float*, int64_t) { fail_input(kWithoutMpi); }

}  // namespace trireme
