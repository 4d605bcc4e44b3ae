// --ranks N: starts this command line again under mpirun; and where each rank's threads run.
#pragma once

#include "parallel/comm/world.h"

namespace trireme {

// What the mpirun command line depends on; tests give their own.
struct LaunchHost {
  bool root = false;
  std::string mpirun;  // path; empty when not found
};
LaunchHost this_host();

// mpirun's arguments for `ranks` copies of `command` (argv[0] included) on this host.
std::vector<std::string> mpirun_command(const LaunchHost& host, int ranks,
                                        const std::vector<std::string>& command);

// Call where a command that may run under a launcher begins: the console then draws where the output
// ends up on a terminal, and nowhere else. ensure_ranks() does it.
void join_console();

// Call first thing in a command that took --ranks N (0: not given). Under a launcher it returns, or
// throws InputError when the launcher's number of ranks is not N. Without one, N <= 1 returns and
// N > 1 replaces this process by mpirun; it then does not return.
void ensure_ranks(int ranks, int argc, char** argv);

// Gives this rank its share of the host's cores: floor(cores / ranks of the host), at least 1 (all
// it may use where a launcher has bound the ranks to different cores), or threads_per_rank where
// that is positive. Pins its OpenMP team there; returns the team's width.
int pin_rank(World& world, int threads_per_rank);

}  // namespace trireme
