// Shared state of the tests in one run of test_cuda_ops: the GPU and the selected cases.
//
//   test_cuda_ops [--sample N] [--seed S] [--dtypes float32,bfloat16] [gtest's options]
//
// --sample: runs only N cases of every op and dtype, drawn with the seed, which is printed.
// --dtypes: runs only these. A run of all cases also fails when a kernel was never launched
// (kernel_coverage.h).
#pragma once

#include <vector>

#include "tests/cuda/registry.h"

namespace trireme::test {

// Opened by the first call until the end of the program, because opening fills much memory.
cuda::Context& shared_gpu();

// Cases of the registry except the large ones.
std::vector<OpCase> emulated_cases();
// Cases of these that this run selects.
std::vector<OpCase> chosen_cases();

}  // namespace trireme::test
