// What the tests of one run of test_cuda_ops share: the GPU, and which cases are tried.
//
//   test_cuda_ops [--sample N] [--seed S] [--dtypes float32,bfloat16] [gtest's options]
//
// --sample: of every op and dtype N cases only, drawn by the seed, which is printed. --dtypes: no
// others. A run of everything also fails when some kernel was never launched (kernel_coverage.h).
#pragma once

#include <vector>

#include "tests/cuda/registry.h"

namespace trireme::test {

// Open from the first call to the end of the program: opening fills much memory.
cuda::Context& shared_gpu();

// The registry's cases without the large ones.
std::vector<OpCase> emulated_cases();
// Those of them that this run tries.
std::vector<OpCase> chosen_cases();

}  // namespace trireme::test
