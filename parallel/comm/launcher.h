// Launcher of this process's ranks.
#pragma once

#include <string>

namespace trireme {

enum class Launcher { kNone, kMpi, kTcp };
// Launcher kinds, detected from environment variables. mpirun, srun with PMI, hydra: kMpi.
// MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE without an MPI launcher: kTcp. None of them, or one
// rank without an address: kNone, a single rank. Detection starts nothing. InputError if a variable
// is invalid, and if only some of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.
struct LauncherInfo {
  Launcher kind = Launcher::kNone;
  std::string name = "none";  // "mpirun", "srun", "torchrun variables", ...
  int ranks = 1;
  int rank = 0;
};
LauncherInfo detect_launcher();

}  // namespace trireme
