// Command line of this process, with which a command starts itself again on several ranks
// (parallel/launch.h).
#pragma once

namespace trireme {

struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
};

}  // namespace trireme
