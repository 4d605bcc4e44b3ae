#include "engine/ops/gemm_choice.h"

#include "engine/ops/cpu/gemv.h"

namespace trireme {

bool library_multiplies(Isa isa, bool library_has_bf16, DType dtype) {
  if (dtype == DType::kF32) return true;
  return dtype == DType::kBF16 && isa == Isa::kAvx512 && library_has_bf16;
}

// Measured: with AVX-512 the library is faster as soon as several rows of x leave the first-level
// cache between two rows of the weight; a type that it does not multiply would have the whole
// weight converted for every product.
GemmPath gemm_path(Isa isa, bool library_has_bf16, const GemmProblem& g) {
  constexpr int64_t kFewOfAvx512 = 4, kFewOfFloat32 = 16, kFew = 96;
  const bool multiplies = library_multiplies(isa, library_has_bf16, g.in);
  const GemmPath many = multiplies ? GemmPath::kLibrary : GemmPath::kWidened;
  if (g.transpose_a || !g.transpose_b) return many;
  // A float16 row is better widened once than again for each row of the weight.
  if (g.m == 1 && g.in != DType::kF16 && g.k <= cpu::kGemvBytes / dtype_size(g.in))
    return GemmPath::kStreamed;
  if (g.m == 1) return GemmPath::kFewRows;
  const bool cached = g.k <= cpu::kGemvBytes / 4 / g.m;
  if (isa == Isa::kAvx512 && multiplies && (g.m > kFewOfAvx512 || !cached))
    return GemmPath::kLibrary;
  return g.m <= (multiplies ? kFewOfFloat32 : kFew) ? GemmPath::kFewRows : many;
}

}  // namespace trireme
