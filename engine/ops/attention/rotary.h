// Rotary position embedding (Su et al. 2021) of heads of width D: for i < D/2 the pair
//   (u, v)  ->  (u cos - v sin,  v cos + u sin)
// where cos, sin are those of position * f_i, in the paper f_i = base^(-2i/D), and
//   kHalves        (u, v) = (x[i], x[i + D/2])     HuggingFace's convention
//   kInterleaved   (u, v) = (x[2i], x[2i + 1])     the paper's, and DeepSeek's weights
// Other frequencies, and a factor of cos and sin, extend the context beyond the trained length
// (transformer/config/rope.h).
#pragma once

#include <span>
#include <vector>

#include "engine/ops/context.h"

namespace trireme {

// Returns the paper's D / 2 frequencies, base^(-2i/D). width: D, even.
std::vector<double> plain_rotary_frequencies(double base, int64_t width);

// Fills cos_sin (P, D), host memory, float32 (float64 when computing in float64): row p holds D/2
// cosines, then D/2 sines, of position p, times factors[p % F] of the F given ones; angles are
// computed in float64. frequencies (D / 2).
void rotary_table(const Tensor& cos_sin, std::span<const double> frequencies,
                  std::span<const double> factors);
inline void rotary_table(const Tensor& cos_sin, std::span<const double> frequencies,
                         double factor = 1) {
  rotary_table(cos_sin, frequencies, std::span<const double>(&factor, 1));
}

enum class RotaryPairs : uint8_t { kHalves, kInterleaved };

// Rotates in place. x (T, H, D) with unit stride in D (a slice of packed QKV is fine); cos_sin is a
// rotary_table() on x's device; positions (T) int32 in [0, P). A position outside is an Error on
// the CPU; on a GPU, whose memory the host does not read, it makes its row NaN. inverse = true is
// the backward pass: it rotates back, or, with a factor in the table, multiplies by the transposed
// matrix.
void rotary(Ctx& ctx, const Tensor& x, const ConstTensor& cos_sin, const ConstTensor& positions,
            bool inverse, RotaryPairs pairs = RotaryPairs::kHalves);

}  // namespace trireme
