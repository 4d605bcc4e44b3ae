// Host memory that this process may still allocate.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Bytes that can be allocated before the kernel kills a process for lack of memory: MemAvailable of
// /proc/meminfo, or the remainder of the limits of this process's control groups (v1, v2),
// whichever is less. 0 if a limit is exceeded. A control group's page cache counts as free, since
// the kernel evicts it; swap does not. INT64_MAX if the system reports nothing. root: a folder that
// contains proc and sys; tests pass their own.
int64_t free_host_memory(const std::string& root = "/");

}  // namespace trireme
