// What threads are called, for who looks at them: top -H, gdb, /proc/PID/task/*/comm.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme {

// The calling thread, and those that it starts from now on until they have names of their own. The
// system keeps 15 bytes; what is longer is cut.
void name_thread(std::string_view name);
// "name-number".
void name_thread(std::string_view name, size_t number);

}  // namespace trireme
