// Which kernels this process has launched, by address: what a test of the tests asks.
#pragma once

#include <set>

namespace emulator {

std::set<const void*> launched_kernels();  // never reset

}  // namespace emulator
