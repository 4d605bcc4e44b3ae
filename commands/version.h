// Version, build and machine information for `trireme --version`.
#pragma once

#include <string>

namespace trireme {

// Lines with version and commit, compiler, devices, libraries, processor, its features and kernels.
std::string version_text();
// Version alone, such as "1.0.0".
std::string version_number();

}  // namespace trireme
