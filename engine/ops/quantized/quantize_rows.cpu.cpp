#include "engine/core/parallel_for.h"
#include "engine/ops/backend/simd.cpu.h"
#include "engine/ops/quantized/quantized_weight.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

using Floats = Vec<float>;
using Ints = Vec<int32_t>;
constexpr int kParts = static_cast<int>(kBlockColumns) / kLanes<float>;

template <int kStep, int... kLane>
TRIREME_INLINE Floats largest_of_partners(Floats v, std::integer_sequence<int, kLane...> lanes) {
  const Floats other = __builtin_shufflevector(v, v, (kLane ^ kStep)...);
  v = v > other ? v : other;
  if constexpr (kStep > 1)
    return largest_of_partners<kStep / 2>(v, lanes);
  else
    return v;
}

// Stores the lowest byte of each lane.
TRIREME_INLINE void store_bytes(int8_t* p, Ints v) {
  typedef int8_t Narrow __attribute__((vector_size(kLanes<float>)));
  const Narrow bytes = __builtin_convertvector(v, Narrow);
  __builtin_memcpy(p, &bytes, sizeof bytes);
}

TRIREME_INLINE void quantize_block(const Floats (&v)[kParts], int8_t* codes, float& scale,
                                   int32_t& total) {
  Floats largest{}, wrong{};
  for (const Floats& part : v) {
    const Floats magnitude = part < 0.0f ? -part : part;
    largest = magnitude > largest ? magnitude : largest;
    wrong += part - part;  // NaN unless all are finite
  }
  const float most = largest_of_partners<kLanes<float> / 2>(largest, LaneNumbers<Floats>{})[0];
  const bool zeros = !(most > 1e-30f);  // the inverse might overflow
  const float inverse = zeros ? 0.0f : 127.0f / most;
  scale = (zeros ? 0.0f : most / 127.0f) + sum(wrong);
  total = 0;
  if (scale != scale) {  // the codes would be arbitrary, and their sum might overflow an integer
    for (int part = 0; part < kParts; ++part) store_bytes(codes + part * kLanes<float>, Ints{});
    return;
  }
  Ints sums{};
  for (int part = 0; part < kParts; ++part) {
    const Floats shifted = opaque(v[part] * inverse) + kRoundingShift<float>;
    const Ints q = __builtin_bit_cast(Ints, shifted) -
                   __builtin_bit_cast(Ints, splat<Floats>(kRoundingShift<float>));
    store_bytes(codes + part * kLanes<float>, q);
    sums += q;
  }
  for (int i = 0; i < kLanes<float>; ++i) total += sums[i];
}

}  // namespace

template <class T>
void quantize_rows(const QuantizeRows<T>& a, int threads) {
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t b = 0; b < a.blocks; ++b) {
        const T* x = a.x + r * a.x_stride + b * kBlockColumns;
        const int64_t left = a.columns - b * kBlockColumns;
        Floats v[kParts];
        for (int part = 0; part < kParts; ++part) {
          const int64_t at = part * kLanes<float>, here = left - at;
          v[part] =
              here >= kLanes<float> ? load(x + at) : load_partial(x + at, here > 0 ? here : 0);
        }
        const int64_t at = r * a.blocks + b;
        quantize_block(v, a.codes + at * kBlockColumns, a.scale[at], a.sum[at]);
      }
  });
}

template void quantize_rows<float>(const QuantizeRows<float>&, int);
template void quantize_rows<bf16>(const QuantizeRows<bf16>&, int);
template void quantize_rows<f16>(const QuantizeRows<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
