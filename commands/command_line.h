// Command line of this process, which is used to start the same command on several ranks
// (parallel/launch.h).
#pragma once

namespace trireme {

struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
};

}  // namespace trireme
