// Runs an op the ways it must work: on every instruction set of this machine, with 1, 2 and 3
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

// The instruction sets this processor runs, best first.
std::vector<Isa> supported_isas();

// Calls run(ctx) on every instruction set with 1, 2 and 3 threads. `run` allocates its outputs,
// runs the op, checks them against a reference and returns them; the outputs of one instruction set
// must be the same bits for every number of threads, and guard bands must be whole.
void for_each_kernel(const std::function<std::vector<TestTensor>(Ctx&)>& run);

// Collects the outputs of a run.
template <class... T>
std::vector<TestTensor> outputs(T&&... tensors) {
  std::vector<TestTensor> out;
  (out.push_back(std::move(tensors)), ...);
  return out;
}

// The values as they are after storing them in `dtype`.
inline std::vector<double> stored(DType dtype, const std::vector<double>& values) {
  return to_doubles(TestTensor(dtype, {std::ssize(values)}, values));
}

// Runs the op in a planning run: it must neither fail nor write to `outputs`; returns the plan.
ArenaPlan expect_plannable(const std::function<void(Ctx&)>& op,
                           const std::vector<const TestTensor*>& outputs);

}  // namespace trireme::test
