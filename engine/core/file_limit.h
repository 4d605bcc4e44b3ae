// Limit on the files this process may have open; each connection counts as one.
#pragma once

#include <cstdint>

namespace trireme {

// Raises the limit to `wanted`, or as far as the system permits; never lowers it.
void raise_file_limit(int64_t wanted);

}  // namespace trireme
