#include "engine/ops/gemm/gemm_choice.h"

#include "engine/core/amx.h"
#include "engine/ops/gemm/gemm_library.h"
#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme {
namespace {

// A float16 row is better widened once than again for each row of the weight. With AVX-512 the
// tiles, which prefetch, are faster (Emerald Rapids: 107 % of plain reading, streaming 70 %).
bool is_streamed(Isa isa, const GemmProblem& g) {
  return g.m == 1 && isa != Isa::kAvx512 && g.in != DType::kF16 &&
         g.k <= cpu::kGemvBytes / dtype_size(g.in);
}

// Largest number of rows for which our tiles are faster. They read the weight once, at the rate of
// memory, up to about 8 rows; the library's kernels multiply faster (float32, Emerald Rapids: the
// library takes 1.11 times as long with 16 rows, 0.98 with 20). For a type that the library does
// not multiply, every product would have to convert the whole weight (bfloat16, Sapphire Rapids
// without AMX: these tiles 170 GFLOP/s with 128 and 155 with 256 rows, the library on float32
// copies 147 and 206).
int64_t max_few_rows(const GemmProcessor& processor, DType dtype) {
  if (!library_multiplies(processor, dtype)) return processor.isa == Isa::kAvx512 ? 160 : 96;
  return dtype == DType::kF32 || uses_bf16_dots(processor) ? 16 : 8;
}

// 9 to 256 rows of bfloat16. Up to 8 rows the bits of a row must not depend on their number, and
// gemm_rows.cpu.h is as fast with one row. By measurement (Emerald Rapids, weights of 8192 x 2048,
// medians of three runs) it takes 1.12 times as long with 4 rows and 1.52 with 8; the library
// (oneDNN 2.6) 2.2 times as long with 16 rows, 1.5 with 64, 1.46 with 256. More were not measured.
bool is_for_amx(const GemmProcessor& processor, const GemmProblem& g) {
  constexpr int64_t kMinAmxRows = 9, kMaxAmxRows = 256, kMinAmxOutputs = 16;
  return processor.isa == Isa::kAvx512 && processor.has_amx_bf16 && g.in == DType::kBF16 &&
         g.m >= kMinAmxRows && g.m <= kMaxAmxRows && g.n >= kMinAmxOutputs;
}

}  // namespace

GemmProcessor gemm_processor(const GemmEngine& engine) {
  const Isa isa = active_isa();
  if (isa != Isa::kAvx512) return {.isa = isa};
  const bool fast_dots = has_fast_bf16_dots(), fast = fast_dots || library_has_amx(engine);
  return {isa, library_has_bf16(engine) && fast, fast_dots, may_use_amx_bf16()};
}

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
  if (is_for_amx(processor, g)) return GemmPath::kAmx;
  return g.m <= max_few_rows(processor, g.in) ? GemmPath::kFewRows : many;
}

}  // namespace trireme
