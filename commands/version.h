// Version and environment of this binary.
#pragma once

#include <string>

namespace trireme {

// Several lines: version and commit, compiler, backends, libraries, processor, chosen kernels.
std::string version_text();
// "1.0.0"
std::string version_number();

}  // namespace trireme
