// Child processes: mpirun, srun, ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {

struct ChildCommand {
  std::vector<std::string> words;  // argv; the first is the program's path
  // Variables that the child gets besides a copy of this process's environment; they replace
  // variables of the same names.
  std::vector<std::pair<std::string, std::string>> variables = {};
  int out = 1, err = 2;  // descriptors that become the child's stdout and stderr
  int listener = -1;     // socket that becomes the child's descriptor kInheritedListener; -1: none
  // Starts with SIGUSR1 and SIGUSR2 blocked, so that they wait for a program that unblocks them.
  bool blocks_requests = false;
};

inline constexpr int kInheritedListener = 3;  // number of the listener's descriptor in the child

// Starts the program in its own process group, which a terminal's signals do not reach. Its
// standard input is empty; it inherits no descriptors but those of ChildCommand. The kernel kills
// it when the calling thread ends. Returns the process id; Error when the system cannot create a
// process or execute the program.
int start_child(const ChildCommand& command);
// Replaces this process with the program at path words[0]; words are its argv. Error when the
// system cannot execute it.
[[noreturn]] void replace_process(std::vector<std::string> words);

}  // namespace trireme
