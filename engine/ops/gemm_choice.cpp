#include "engine/ops/gemm_choice.h"

#include "engine/ops/cpu/gemv.h"

namespace trireme {
namespace {

// A float16 row is better widened once than again for each row of the weight. With AVX-512 the
// tiles, which fetch ahead, are faster (Emerald Rapids: 107 % of plain reading, this 70 %).
bool is_streamed(Isa isa, const GemmProblem& g) {
  return g.m == 1 && isa != Isa::kAvx512 && g.in != DType::kF16 &&
         g.k <= cpu::kGemvBytes / dtype_size(g.in);
}

// The largest number of rows for which our tiles are faster. They read the weight once, as fast as
// memory gives it, up to about 8 rows; the library's kernels multiply faster (float32, Emerald
// Rapids: the library takes 1.11 times as long with 16 rows, 0.98 with 20). A type that the library
// does not multiply would have the whole weight converted for every product.
int64_t max_few_rows(const GemmProcessor& processor, DType dtype) {
  if (!library_multiplies(processor, dtype)) return 96;
  return dtype == DType::kF32 || uses_bf16_dots(processor) ? 16 : 8;
}

}  // namespace

bool library_multiplies(const GemmProcessor& processor, DType dtype) {
  if (dtype == DType::kF32) return true;
  return dtype == DType::kBF16 && processor.isa == Isa::kAvx512 && processor.has_library_bf16;
}

bool uses_bf16_dots(const GemmProcessor& processor) {
  return processor.isa == Isa::kAvx512 && processor.has_fast_bf16_dots;
}

GemmPath gemm_path(const GemmProcessor& processor, const GemmProblem& g) {
  const GemmPath many =
      library_multiplies(processor, g.in) ? GemmPath::kLibrary : GemmPath::kWidened;
  if (g.transpose_a || !g.transpose_b) return many;
  if (is_streamed(processor.isa, g)) return GemmPath::kStreamed;
  return g.m <= max_few_rows(processor, g.in) ? GemmPath::kFewRows : many;
}

}  // namespace trireme
