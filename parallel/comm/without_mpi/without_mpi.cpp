// Stubs for -DTRIREME_MPI=OFF: the functions of parallel/comm/mpi/ refuse with an InputError.
#include "parallel/comm/mpi/mpi_own.h"
#include "parallel/comm/transport.h"

namespace trireme {
namespace {

constexpr const char* kWithoutMpi =
    "this program was built without MPI (-DTRIREME_MPI=OFF): start each rank with WORLD_SIZE, "
    "RANK, MASTER_ADDR and MASTER_PORT, as torchrun does, and they talk over TCP";

}  // namespace

bool has_mpi() { return false; }

std::unique_ptr<Transport> make_mpi_transport() { fail_input(kWithoutMpi); }

void mpi_own_collective(CommKind, float*, const float*, int64_t) { fail_input(kWithoutMpi); }

}  // namespace trireme
