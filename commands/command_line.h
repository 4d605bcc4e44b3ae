// Command line of this process, for starting the same command on several ranks (parallel/launch.h).
#pragma once

namespace trireme {

struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
};

}  // namespace trireme
