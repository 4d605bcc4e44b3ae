// Launcher of this process's ranks.
#pragma once

#include <string>

namespace trireme {

// Kinds of launchers. kMpi: mpirun, srun with PMI, hydra. kTcp: MASTER_ADDR, MASTER_PORT, RANK and
// WORLD_SIZE are set, and there is no MPI launcher. kNone: a single rank; RANK and WORLD_SIZE are
// not set, or WORLD_SIZE is 1 and MASTER_ADDR is not set.
enum class Launcher { kNone, kMpi, kTcp };
struct LauncherInfo {
  Launcher kind = Launcher::kNone;
  std::string name = "none";  // "mpirun", "srun", "torchrun variables", ...
  int ranks = 1;
  int rank = 0;
};
// Detects the launcher from environment variables; starts nothing. InputError if a variable is
// invalid, and if RANK or WORLD_SIZE is set without the others that kTcp needs.
LauncherInfo detect_launcher();

}  // namespace trireme
