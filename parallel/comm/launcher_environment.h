// What the environment says to launching and connecting; nothing else reads it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/observe/console.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

// As torchrun-style launchers give them: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE. Beside these:
// the secret of the run, or a file whose first line it is;
inline constexpr const char* kCommSecretVariable = "TRIREME_COMM_SECRET";
inline constexpr const char* kCommSecretFileVariable = "TRIREME_COMM_SECRET_FILE";
// the address where ranks listen, "*": all;
inline constexpr const char* kListenAddressVariable = "TRIREME_LISTEN_ADDRESS";
// the descriptor of a socket that listens at MASTER_PORT, which rank 0 inherits from its launcher.
inline constexpr const char* kListenerVariable = "TRIREME_LISTENER";
TcpOptions tcp_options_from_environment(double timeout_s);

// Removes from this process's environment, and so from that of whatever it starts, the variables by
// which launchers number their ranks. Returns those by which this process would have been a rank,
// "RANK=0, WORLD_SIZE=4"; empty: none. Before other threads.
std::string forget_launchers();
// Removes the Slurm allocation: mpirun would start ranks on its machines, and fail where it cannot
// reach them. Before other threads.
void forget_allocation();
// Whether a running MPI launcher started this process or one that it descends from; its variables
// alone may be left over from another launch.
bool runs_under_mpi_launcher();

// For a process that starts others: its own variables, with these in the place of those of the same
// names, as execve() takes them: "NAME=value".
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& changed);
// What a process that leads ranks tells each of them in their environment: where its side channel
// is, and the job's secret (serving/distributed/side_meeting.h). Empty: nobody leads this process.
inline constexpr const char* kLeaderVariable = "TRIREME_LEADER";
std::string leader_from_environment();
// What a process that starts several groups of ranks on this machine tells each of them: "2/6" for
// the third and fourth rank of six.
inline constexpr const char* kMachineRanksVariable = "TRIREME_MACHINE_RANKS";
struct MachineRanks {
  int before = 0;  // ranks of groups that come before this one's
  int all = 0;     // of all groups; 0: there is only this one
};
MachineRanks machine_ranks_from_environment();
// What tells the ranks of one start by an MPI launcher from those of others; empty: it does not
// say.
std::string launcher_job();
// Machines of the Slurm allocation that this process lives in; 0: there is none.
int slurm_machines();

std::string executable_search_path();  // folders separated by colons
// Where Open MPI's mpirun makes the folder of its session.
std::string mpirun_session_folder();

// Path of the mpirun by which --ranks of this program started this process; empty: it did not.
void hand_down_mpirun(const std::string& path);
std::string handed_down_mpirun();

// From the process that replaces itself by mpirun to the ranks on the same machine: what its
// outputs lead to. Ranks that another process started know nothing of it: no terminal.
void hand_down_console(const ConsoleTarget& target);
ConsoleTarget handed_down_console();

}  // namespace trireme
