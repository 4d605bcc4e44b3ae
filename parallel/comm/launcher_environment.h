// What the environment says to launching and connecting; nothing else reads it.
#pragma once

#include "parallel/comm/transport.h"

namespace trireme {

// As torchrun-style launchers give them: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE.
TcpOptions tcp_options_from_environment(double timeout_s);

std::string executable_search_path();  // folders separated by colons

}  // namespace trireme
