// cuBLASLt's handle, workspace and prepared products of one device. For CUDA sources only.
//
// The library is column-major: it computes C^T = op(B)^T op(A)^T, whose operands are the stored
// matrices unchanged.
//
// Reproducible: each shape has one algorithm, the heuristic's best. Split-K is allowed in one form
// only, which adds float32 partial sums in a fixed order (others add in the output's type or in
// place). With Context::autotune the best few algorithms are timed once per shape instead. Two runs
// may then differ, unless the second uses the algorithms kept by the first.
//
// Products whose number of rows comes from the data (GemmArgs::varying_rows) are grouped by ranges
// of row counts. A range has one algorithm, which the heuristic selects once for its largest row
// count and which is never timed; each product only creates its own descriptors. (If the library
// rejects the algorithm for a product, that product is prepared by its own shape, as above.) The
// result does not depend on which product of a range comes first.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>

#include "engine/core/memory.h"
#include "engine/device/context.h"
#include "engine/ops/gemm/gemm_algorithms.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme::cuda {

// clang-format off
#define TRIREME_CUBLASLT_FUNCTIONS(X)                                                        \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetStatusString) X(cublasLtGetVersion)      \
  X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic)                                        \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                       \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate)                      \
  X(cublasLtMatrixLayoutDestroy)
// clang-format on

// Functions of the library, opened once per process. Throws InputError if the library is missing.
struct BlasLtFunctions {
#define TRIREME_DECLARE(name) decltype(&::name) name = nullptr;
  TRIREME_CUBLASLT_FUNCTIONS(TRIREME_DECLARE)
#undef TRIREME_DECLARE
};
const BlasLtFunctions& blas_lt_functions();

class BlasLt final : public LibraryHandle {
 public:
  explicit BlasLt(const DeviceInfo& info);
  ~BlasLt() override;
  void multiply(Context& gpu, const GemmProblem& problem, const GemmPointers& p);  // main stream
  int64_t plans_made() const;  // so far, including those made again after they were dropped
  std::optional<GemmAlgorithms>& kept() const;  // keep_algorithms(); empty: none are kept

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Sets every row of C to the bias, or to zeros without one.
void write_bias(Context& gpu, const GemmProblem& problem, const GemmPointers& p);

}  // namespace trireme::cuda
