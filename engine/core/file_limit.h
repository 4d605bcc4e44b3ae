// Limit on this process's open file descriptors (RLIMIT_NOFILE); each connection counts as one.
#pragma once

#include <cstdint>

namespace trireme {

// Raises the soft limit to `wanted` or the hard limit, whichever is less; never lowers it. No
// effect if the system refuses.
void raise_file_limit(int64_t wanted);

}  // namespace trireme
