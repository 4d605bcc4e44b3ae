// Names of threads, as shown by top -H, gdb and /proc/PID/task/*/comm.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme {

// Names the calling thread, and threads it starts later until they set their own names. The system
// keeps 15 bytes; a longer name is cut.
void name_thread(std::string_view name);
// "name-number".
void name_thread(std::string_view name, size_t number);

}  // namespace trireme
