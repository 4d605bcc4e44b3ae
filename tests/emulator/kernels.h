// Kernels that this process has launched, by address, for the coverage test.
#pragma once

#include <set>

namespace emulator {

std::set<const void*> launched_kernels();  // never reset

}  // namespace emulator
