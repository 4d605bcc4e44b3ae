// Processes that this one starts: mpirun, srun, ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct ChildCommand {
  std::vector<std::string> words;  // the first is the program's path
  // In the place of those of the same names in this process's environment, or besides.
  std::vector<std::pair<std::string, std::string>> variables = {};
  int out = 1, err = 2;  // descriptors that become its outputs
  int listener = -1;     // a socket that becomes its descriptor kInheritedListener; -1: none
};

inline constexpr int kInheritedListener = 3;

// Starts it with an empty input, no descriptors but these, in a process group of its own: signals
// of a terminal do not reach it. It is killed when the thread that calls this ends. Returns the
// process number; Error where the system gives no process or cannot execute the program.
int start_child(const ChildCommand& command);
// Executes it in the place of this process. Error where the system cannot.
[[noreturn]] void replace_process(std::vector<std::string> words);

}  // namespace trireme
