// Environment variables of launching and connecting; no other code reads them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/observe/console.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

// Variables beyond those of torchrun-style launchers (MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE).
// Secret of the run, and a file whose first line is the secret.
inline constexpr const char* kCommSecretVariable = "TRIREME_COMM_SECRET";
inline constexpr const char* kCommSecretFileVariable = "TRIREME_COMM_SECRET_FILE";
// Address or host name at which ranks listen; "*": all interfaces.
inline constexpr const char* kListenAddressVariable = "TRIREME_LISTEN_ADDRESS";
// Descriptor of a socket that listens on MASTER_PORT, which rank 0 inherits from its launcher.
inline constexpr const char* kListenerVariable = "TRIREME_LISTENER";
// Options of this rank. InputError if MASTER_PORT, RANK or WORLD_SIZE is not a valid number, or if
// the secret cannot be read or does not have 16 to 4096 characters.
TcpOptions tcp_options_from_environment(double timeout_s);

// Removes the variables by which launchers number their ranks from the environment of this process
// and so of its children. Returns those that would have made this process a rank, such as "RANK=0,
// WORLD_SIZE=4"; empty: none. Call before other threads start.
std::string forget_launchers();
// Removes the variables of the Slurm allocation: mpirun would start ranks on its machines, and fail
// if it cannot reach them. Call before other threads start.
void forget_allocation();
// True if variables of an MPI launcher are set and an ancestor of this process is such a launcher,
// or is not visible to this process. The variables alone may be left over from another launch.
bool runs_under_mpi_launcher();

// Environment for a child process: this process's variables, with `changed` replacing those of the
// same names, as "NAME=value" for execve().
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& changed);
// Set by the leader process for each rank it starts: the address of the leader's control channel
// and the job's secret (parallel/comm/control/control_rendezvous.h). Empty: no leader.
inline constexpr const char* kLeaderVariable = "TRIREME_LEADER";
std::string leader_from_environment();
// Set by a process that starts several groups of ranks on this machine, for each group: "2/6" for a
// group of two that has the third and fourth of six ranks. InputError if the value is invalid.
inline constexpr const char* kMachineRanksVariable = "TRIREME_MACHINE_RANKS";
struct MachineRanks {
  int before = 0;  // ranks of the groups before this one
  int all = 0;     // of all groups; 0: there is only this group
};
MachineRanks machine_ranks_from_environment();
// Job id common to the ranks of one start by an MPI launcher; empty: the launcher sets none.
std::string launcher_job();
// Number of machines of the Slurm allocation of this process; 0: no allocation.
int slurm_machines();

std::string executable_search_path();  // folders separated by colons
// Folder in which Open MPI's mpirun creates its session folder.
std::string mpirun_session_folder();

// Path of the mpirun through which --ranks started this process; empty: started in another way.
// hand_down_mpirun() also sets variables without which mpirun fails (PATH, its remote shell).
void hand_down_mpirun(const std::string& path);
std::string handed_down_mpirun();

// Console target of the process that replaces itself by mpirun, passed on to the ranks on the same
// machine. Ranks started in another way have no such variable and draw on no terminal.
void hand_down_console(const ConsoleTarget& target);
ConsoleTarget handed_down_console();

}  // namespace trireme
