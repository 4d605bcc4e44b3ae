// --ranks N: starts this command line again under mpirun; and where each rank's threads run.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/world.h"

namespace trireme {

class ReservedPort;  // parallel/comm/transport/reserved_port.h

// What the mpirun command line depends on; tests give their own.
struct LaunchHost {
  bool root = false;
  std::string mpirun;  // path; empty when not found
};
LaunchHost this_host();

// mpirun's arguments for `ranks` copies of `command` (argv[0] included) on this host.
std::vector<std::string> mpirun_command(const LaunchHost& host, int ranks,
                                        const std::vector<std::string>& command);

// Call where a command that may run under a launcher begins: the console then draws where the
// output ends up on a terminal, and nowhere else. ensure_ranks() does it.
void join_console();

// Call where --ranks N was given, before anything else reads what launchers set. --ranks starts its
// own ranks: variables that another launch left in the environment are removed, and a warning names
// them. They count under an MPI launcher that runs, and in the ranks that --ranks has started.
void claim_ranks(int ranks);

// Whether a command that took --ranks N (0: not given) has to start N ranks. False for one rank and
// under a launcher; InputError when the launcher's number of ranks is not N, and when the mpirun
// that --ranks found is not Open MPI's.
bool must_start_ranks(int ranks);
// Before mpirun at that path is started: InputError where it cannot start ranks (launch_checks.h);
// its processes get the console, and no allocation of Slurm, since all ranks run on this machine.
void prepare_for_mpirun(const std::string& mpirun, int ranks);
// Call first thing in such a command: replaces this process by mpirun where it has to start ranks,
// and then does not return. A command that saves when it is stopped calls run_supervised_ranks()
// instead (supervised_ranks.h).
void ensure_ranks(int ranks, int argc, char** argv);

// How a process that leads ranks starts them: as children on this machine, which meet over TCP;
// through mpirun, as its configuration says; through srun, over the machines of a Slurm allocation.
enum class RankLauncher { kLocal, kMpirun, kSrun };
// "local", "mpirun", "srun"; "auto": srun within an allocation of several machines, else local.
RankLauncher rank_launcher(const std::string& name);
// Which of several groups of as many ranks each, side by side and apart: replicas of a model. On
// one machine each group has its own part of the cores and GPUs, in a Slurm allocation its own
// machines.
struct GroupPlace {
  int number = 0, groups = 1;
};
// InputError where a launcher cannot keep so many groups apart.
void check_groups(RankLauncher launcher, int groups);
// What to start so that there are `ranks` copies of `command` (argv[0] included), each told of
// `leader` by its environment, and the variables that it takes besides those of this process.
struct RankCommand {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables;
  // Where local ranks meet: it listens while one of their commands is kept. Rank 0 inherits the
  // socket.
  std::shared_ptr<const ReservedPort> port = {};
  bool listens = false;
};
// One entry for each process that this one has to start. Local ranks meet at a port of the loopback
// interface, and get a secret of their own in their environment: no other process of the machine
// can join them.
std::vector<RankCommand> rank_commands(RankLauncher launcher, int ranks,
                                       const std::vector<std::string>& command,
                                       const std::string& leader, const GroupPlace& place = {});
// Starts it (child_process.h); the ranks that it starts end with it (end_with_parent()). out, err:
// descriptors of its outputs.
int start_process(const RankCommand& command, int out = 1, int err = 2);
// This process is killed when the one that started it ends.
void end_with_parent();
// argv as another process can start it: its first word is this executable's path.
std::vector<std::string> own_command(int argc, char** argv);

// Gives this rank its share of the host's cores: floor(cores / ranks of the host), at least 1 (all
// it may use where a launcher has bound the ranks to different cores), or threads_per_rank where
// that is positive. Pins its OpenMP team there; returns the team's width.
int pin_rank(World& world, int threads_per_rank);

}  // namespace trireme
