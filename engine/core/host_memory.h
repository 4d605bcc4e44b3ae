// Memory of the machine that this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Bytes that can be taken before the kernel ends a process for want of memory: MemAvailable of
// /proc/meminfo, or what is left of the limits of the control groups (v1, v2) that this process is
// in, whichever is less. Pages of files count as free, since the kernel gives them up; swap does
// not. INT64_MAX where the system tells nothing. root: a folder with a proc and a sys in it; tests
// have their own.
int64_t free_host_memory(const std::string& root = "/");

}  // namespace trireme
