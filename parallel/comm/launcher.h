// Launcher of this process's ranks.
#pragma once

#include <string>

namespace trireme {

enum class Launcher { kNone, kMpi, kTcp };
// From the variables launchers set: mpirun, srun with PMI, hydra -> kMpi; MASTER_ADDR, MASTER_PORT,
// RANK and WORLD_SIZE without an MPI launcher -> kTcp; none of them, or one rank without an address
// -> kNone, one rank. Reading them starts nothing. InputError where a variable makes no sense, and
// where only a part of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT is there.
struct LauncherInfo {
  Launcher kind = Launcher::kNone;
  std::string name = "none";  // "mpirun", "srun", "torchrun variables", ...
  int ranks = 1;
  int rank = 0;
};
LauncherInfo detect_launcher();

}  // namespace trireme
