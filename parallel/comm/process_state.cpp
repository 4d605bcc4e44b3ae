#include "parallel/comm/process_state.h"

#include <fstream>
#include <sstream>

#include "engine/core/error.h"

namespace trireme {

ProcessState process_state(int pid) {
  ProcessState state;
  std::ifstream file(concat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    int tracer = 0;
    if (name == "State:") words >> state.letter;
    if (name == "TracerPid:" && words >> tracer) state.traced = tracer != 0;
  }
  return state;
}

}  // namespace trireme
