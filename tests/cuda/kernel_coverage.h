// Coverage of the sources' kernels: those that this process has launched on the emulated GPU.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trireme::test {

struct KernelCoverage {
  std::map<std::string, bool> kernels = {};  // "norm.cu forward_kernel": launched
  int64_t instances = 0, launched = 0;       // template instances of kernels
  std::vector<std::string> idle = {};        // instances that were not launched
};

// Computed from the sources' __global__ functions and this program's symbol table. A kernel is one
// function of one file, independent of its template arguments. Throws where the two disagree.
KernelCoverage kernel_coverage();

}  // namespace trireme::test
