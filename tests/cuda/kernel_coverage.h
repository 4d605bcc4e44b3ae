// Which of the kernels in the sources this process has launched on the emulated GPU.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trireme::test {

struct KernelCoverage {
  std::map<std::string, bool> kernels = {};  // "norm.cu forward_kernel": launched
  int64_t instances = 0, launched = 0;       // of their templates
  std::vector<std::string> idle = {};        // the instances that were not launched
};

// From the sources' __global__ functions and this program's table of symbols. A kernel is one
// function of one file, whatever its template arguments are. Throws where the two do not agree.
KernelCoverage kernel_coverage();

}  // namespace trireme::test
