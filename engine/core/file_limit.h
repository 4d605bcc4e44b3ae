// How many files this process may have open; each connection is one.
#pragma once

#include <cstdint>

namespace trireme {

// Raises the limit to so many, or as far as the system lets it; never lowers it.
void raise_file_limit(int64_t wanted);

}  // namespace trireme
