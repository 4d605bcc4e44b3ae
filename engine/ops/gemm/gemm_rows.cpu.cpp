#include "engine/ops/gemm/gemm_rows.cpu.h"

#include "engine/ops/gemm/gemm_tile.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// float32 multiply-adds; 16-bit operands are widened, those of x while packing.
template <class T>
struct WideProducts {
  using Weight = T;
  using Row = float;
  using Operand = Floats;
  static constexpr int kParts = 2;
  template <int kPart>
  TRIREME_INLINE static Operand weight(const T* w) {
    return load_half_step<kPart>(w);
  }
  template <int kPart>
  TRIREME_INLINE static Operand row(const float* x) {
    return load(x + kPart * kLanes<float>);
  }
  TRIREME_INLINE static Floats add(Operand w, Operand x, Floats sum) {
    return multiply_add(w, x, sum);
  }
  TRIREME_INLINE static void pack(float* to, const T* step) {
    store(to, load_half_step<0>(step));
    store(to + kLanes<float>, load_half_step<1>(step));
  }
};

}  // namespace

template <class T>
void gemm_rows(const Gemv<T>& a, int threads) {
  multiply_rows<WideProducts<T>>(a, threads);
}

template void gemm_rows<float>(const Gemv<float>&, int);
template void gemm_rows<bf16>(const Gemv<bf16>&, int);
template void gemm_rows<f16>(const Gemv<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
