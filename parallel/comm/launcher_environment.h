// What the environment says to launching and connecting; nothing else reads it.
#pragma once

#include "engine/observe/console.h"
#include "parallel/comm/transport.h"

namespace trireme {

// As torchrun-style launchers give them: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE.
TcpOptions tcp_options_from_environment(double timeout_s);

std::string executable_search_path();  // folders separated by colons

// From the process that replaces itself by mpirun to the ranks on the same machine: what its outputs
// lead to. Ranks that another process started know nothing of it: no terminal.
void hand_down_console(const ConsoleTarget& target);
ConsoleTarget handed_down_console();

}  // namespace trireme
