// Runs an op in all supported ways: with every instruction set of this machine, with 1, 2 and 3
// threads, and in a planning run.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/core/cpu.h"
#include "engine/ops/context.h"
#include "tests/support/compare.h"

namespace trireme::test {

inline const std::vector<DType> kFloatTypes = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};
inline const std::vector<int64_t> kOddSizes = {1, 7, 33, 127, 1000};

// Instruction sets that this processor supports, best first.
std::vector<Isa> supported_isas();

// Calls run(ctx) for every instruction set with 1, 2 and 3 threads. `run` allocates its outputs,
// runs the op, compares them with a reference and returns them. With one instruction set, the
// outputs must be bitwise equal for every number of threads, and guard bands must be intact.
void for_each_kernel(const std::function<std::vector<TestTensor>(Ctx&)>& run);

// Collects the outputs of a run.
template <class... T>
std::vector<TestTensor> outputs(T&&... tensors) {
  std::vector<TestTensor> out;
  (out.push_back(std::move(tensors)), ...);
  return out;
}

// The values after rounding to `dtype`.
inline std::vector<double> stored(DType dtype, const std::vector<double>& values) {
  return to_doubles(TestTensor(dtype, {std::ssize(values)}, values));
}

// Runs the op in a planning run: it must neither fail nor write to `outputs`. Returns the plan.
ArenaPlan expect_plannable(const std::function<void(Ctx&)>& op,
                           const std::vector<const TestTensor*>& outputs);

}  // namespace trireme::test
