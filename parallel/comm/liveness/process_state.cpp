#include "parallel/comm/liveness/process_state.h"

#include <fstream>
#include <sstream>

#include "engine/core/error.h"

namespace trireme {

ProcessState process_state(int pid) {
  std::ifstream status(concat("/proc/", pid, "/status"));
  return read_process_state(status);
}

ProcessState read_process_state(std::istream& status) {
  ProcessState state;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    int tracer = 0, dumping = 0;
    if (name == "State:") words >> state.letter;
    if (name == "TracerPid:" && words >> tracer) state.traced = tracer != 0;
    if (name == "CoreDumping:" && words >> dumping) state.dumping = dumping != 0;
  }
  return state;
}

}  // namespace trireme
