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

// argv of mpirun for `ranks` copies of `command` (argv[0] included) on this host. InputError if
// host.mpirun is empty.
std::vector<std::string> mpirun_command(const LaunchHost& host, int ranks,
                                        const std::vector<std::string>& command);

// Call at the start of a command that may run under a launcher: the console then draws only if the
// launcher's own output is a terminal. must_start_ranks() calls it under a launcher.
void join_console();

// Call if --ranks N was given, before anything else reads the variables of launchers. --ranks
// starts its own ranks, so variables left in the environment by another launch are removed, with a
// warning that names them. They are kept under a running MPI launcher and in the ranks that --ranks
// or a leader has started.
void claim_ranks(int ranks);

// True if a command that got --ranks N (0: not given) must start N ranks. InputError if N is
// negative. False under a launcher; there InputError if N is above 0 and not the launcher's number
// of ranks. Without a launcher, false for N below 2, and for N above 1 InputError in two cases: the
// program was built without MPI; the mpirun of --ranks started this rank without Open MPI's
// variables.
bool must_start_ranks(int ranks);
// Prepares this process's environment for the mpirun at that path: adds variables that hand that
// path and the console's target to the ranks, and removes those of the Slurm allocation, since all
// ranks run on this machine. InputError if that mpirun cannot start ranks
// (parallel/launch_checks.h).
void prepare_for_mpirun(const std::string& mpirun, int ranks);
// Call first in a command that takes --ranks: if it must start ranks, replaces this process with
// mpirun and does not return. A command that saves when stopped calls run_supervised_ranks()
// instead (supervised_ranks.h).
void ensure_ranks(int ranks, int argc, char** argv);

// Mechanism by which a leader starts its ranks. kLocal: as children on this machine, which connect
// over TCP. kMpirun: through mpirun, as it is configured. kSrun: through srun, over the machines of
// a Slurm allocation.
enum class RankLauncher { kLocal, kMpirun, kSrun };
// "local", "mpirun", "srun"; "auto": srun within a Slurm allocation of several machines, else
// local. InputError for another name.
RankLauncher rank_launcher(const std::string& name);
// Index of a group of ranks (a replica of the model) among independent groups of equal size. On one
// machine each group has its own share of the cores and GPUs, in a Slurm allocation its own
// machines.
struct GroupPosition {
  int number = 0, groups = 1;  // index from 0, and number of groups
};
// Throws InputError if the launcher cannot give each of `groups` groups its own cores and GPUs:
// kMpirun with more than one group, kSrun if `groups` does not divide the allocation's machines.
void check_groups(RankLauncher launcher, int groups);
// Process to start. All commands of a group together run `ranks` copies of `command` (argv[0]
// included), each with `leader` in its environment. variables: as in ChildCommand
// (parallel/child_process.h).
struct RankCommand {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables;
  // Rendezvous port of local ranks, open until all their commands are destroyed.
  std::shared_ptr<const ReservedPort> port = {};
  bool listens = false;  // rank 0 of several: inherits the port's socket
};
// Commands that start a group: one per local rank, or a single mpirun or srun. InputError if mpirun
// or srun is not found. Local ranks connect at a port of the loopback interface and share a new
// secret in their environment, so no other process of the machine can join them.
std::vector<RankCommand> rank_commands(RankLauncher launcher, int ranks,
                                       const std::vector<std::string>& command,
                                       const std::string& leader,
                                       const GroupPosition& position = {});
// Starts the process (child_process.h) and returns its id. Ranks under it end with it if they call
// end_with_parent(). out, err: descriptors of its outputs.
int start_process(const RankCommand& command, int out = 1, int err = 2);
// Makes the kernel kill this process when its parent ends.
void end_with_parent();
// argv for starting this program from another process: argv[0] is the executable's path.
std::vector<std::string> own_command(int argc, char** argv);

// Pins this rank's OpenMP team to its share of the host's cores and returns the number of threads.
// The share is floor(cores / ranks of the host), at least 1; where a launcher has bound ranks to
// different cores, it is all cores that this rank may use. threads_per_rank: number of threads;
// 0: one per core of the share.
int pin_rank(World& world, int threads_per_rank);

}  // namespace trireme
