// Launching of ranks (--ranks N runs this command line again under mpirun) and pinning of their
// threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/world.h"

namespace trireme {

class ReservedPort;  // parallel/comm/transport/reserved_port.h

// Host properties that the mpirun command line depends on; tests pass their own.
struct LaunchHost {
  bool root = false;
  std::string mpirun;  // path; empty when not found
};
LaunchHost this_host();

// mpirun's arguments for `ranks` copies of `command` (argv[0] included) on this host.
std::vector<std::string> mpirun_command(const LaunchHost& host, int ranks,
                                        const std::vector<std::string>& command);

// Call at the start of a command that may run under a launcher: the console then draws only where
// the output ends up on a terminal. ensure_ranks() calls it.
void join_console();

// Call where --ranks N was given, before anything else reads the variables of launchers. --ranks
// starts its own ranks, so variables left in the environment by another launch are removed, with a
// warning that names them. They are kept under a running MPI launcher and in the ranks that --ranks
// has started.
void claim_ranks(int ranks);

// True if a command that got --ranks N (0: not given) must start N ranks. False for one rank and
// under a launcher. InputError if the launcher's number of ranks is not N, or if the mpirun found
// by --ranks is not Open MPI's.
bool must_start_ranks(int ranks);
// Prepares for starting mpirun at that path. InputError if it cannot start ranks (launch_checks.h).
// Its processes get the console but no Slurm allocation, since all ranks run on this machine.
void prepare_for_mpirun(const std::string& mpirun, int ranks);
// Call first in a command that takes --ranks: where it must start ranks, replaces this process by
// mpirun and does not return. A command that saves when stopped calls run_supervised_ranks()
// instead (supervised_ranks.h).
void ensure_ranks(int ranks, int argc, char** argv);

// Mechanism by which a leader starts its ranks. kLocal: as children on this machine, which connect
// over TCP. kMpirun: through mpirun, as it is configured. kSrun: through srun, over the machines of
// a Slurm allocation.
enum class RankLauncher { kLocal, kMpirun, kSrun };
// "local", "mpirun", "srun"; "auto": srun within an allocation of several machines, else local.
RankLauncher rank_launcher(const std::string& name);
// Position among several independent groups with equal numbers of ranks: replicas of a model. On
// one machine each group has its own share of the cores and GPUs, in a Slurm allocation its own
// machines.
struct GroupPosition {
  int number = 0, groups = 1;
};
// InputError where the launcher cannot keep that many groups apart.
void check_groups(RankLauncher launcher, int groups);
// Process to start. All commands of a group together run `ranks` copies of `command` (argv[0]
// included), each with `leader` in its environment. variables: added to this process's environment.
struct RankCommand {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables;
  // Rendezvous port of local ranks, listening while any of their commands is kept. Rank 0 inherits
  // the socket.
  std::shared_ptr<const ReservedPort> port = {};
  bool listens = false;
};
// One entry per process to start. Local ranks connect at a port of the loopback interface and share
// a new secret in their environment, so no other process of the machine can join them.
std::vector<RankCommand> rank_commands(RankLauncher launcher, int ranks,
                                       const std::vector<std::string>& command,
                                       const std::string& leader,
                                       const GroupPosition& position = {});
// Starts the process (child_process.h); the ranks that it starts end with it (end_with_parent()).
// out, err: descriptors of its outputs.
int start_process(const RankCommand& command, int out = 1, int err = 2);
// Has this process killed when its parent ends.
void end_with_parent();
// argv for starting this program from another process: argv[0] is the executable's path.
std::vector<std::string> own_command(int argc, char** argv);

// Pins this rank's OpenMP team to its share of the host's cores and returns the team's width. The
// share is floor(cores / ranks of the host), at least 1; where a launcher has bound ranks to
// different cores, it is all cores that this rank may use. A positive threads_per_rank sets the
// width instead.
int pin_rank(World& world, int threads_per_rank);

}  // namespace trireme
