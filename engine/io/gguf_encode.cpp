// Encoders of gguf_blocks.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "engine/io/gguf_blocks.h"

namespace trireme {
namespace {

// Stores a number in half precision and returns the value a reader gets.
float store_half(double value, std::byte* at) {
  const f16 stored(static_cast<float>(value));
  std::memcpy(at, &stored, sizeof(stored));
  return static_cast<float>(stored);
}

int nearest(double value, int least, int most) {
  return static_cast<int>(std::clamp<double>(std::round(value), least, most));
}
std::byte byte_of(int code) { return static_cast<std::byte>(code & 255); }

// 1 / d; 0 if d is 0 or so small that half precision stores it as 0.
float inverse_of(float d) {
  return std::abs(d) < std::numeric_limits<float>::min() ? 0.0f : 1.0f / d;
}

// First number of the largest absolute value.
float extreme_of(std::span<const float> x) {
  float found = 0;
  for (const float value : x)
    if (std::abs(value) > std::abs(found)) found = value;
  return found;
}

// x ~ scale q - minimum, q from 0 to 15; neither scale nor minimum is negative.
struct Affine {
  double scale = 0, minimum = 0;
};

// Least-squares fit of x to integers q, with the minimum clamped at 0.
Affine fitted(std::span<const float> x, std::span<const int> q) {
  double sum_q = 0, sum_qq = 0, sum_x = 0, sum_xq = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = x[i], code = q[i];
    sum_q += code;
    sum_qq += code * code;
    sum_x += value;
    sum_xq += value * code;
  }
  const auto n = static_cast<double>(x.size());
  const double determinant = n * sum_qq - sum_q * sum_q;
  if (determinant > 0) {
    const Affine fit{(n * sum_xq - sum_x * sum_q) / determinant,
                     (sum_q * sum_xq - sum_qq * sum_x) / determinant};
    if (fit.minimum >= 0) return fit;
  }
  return {sum_qq > 0 ? std::max(0.0, sum_xq / sum_qq) : 0, 0};
}

Affine search_affine(std::span<const float> x) {
  const auto [low, high] = std::ranges::minmax(x);
  const double lowest = std::min(0.0F, low), range = static_cast<double>(high) - lowest;
  if (range <= 0) return {0, -lowest};
  Affine best;
  double least = std::numeric_limits<double>::infinity();
  std::array<int, 32> q{};
  for (int step = -8; step <= 4; ++step) {  // 0: the whole range
    const double inverse = (15 + 0.125 * step) / range;
    for (size_t i = 0; i < x.size(); ++i) q[i] = nearest(inverse * (x[i] - lowest), 0, 15);
    const Affine fit = fitted(x, q);
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = fit.scale * q[i] - fit.minimum - x[i];
      error += e * e;
    }
    if (error < least) {
      least = error;
      best = fit;
    }
  }
  return best;
}

// x ~ scale q, q from -32 to 31; the scale may be negative.
double search_symmetric(std::span<const float> x) {
  const double extreme = extreme_of(x);
  if (extreme == 0) return 0;
  double best = 0, most = -1;
  for (int step = -8; step <= 8; ++step) {  // 0: the number of the largest |x| is -32
    const double inverse = -(32 + 0.125 * step) / extreme;
    double sum_qq = 0, sum_xq = 0;
    for (const float value : x) {
      const double code = nearest(inverse * value, -32, 31);
      sum_qq += code * code;
      sum_xq += value * code;
    }
    // The squared error of the fitted scale is sum x^2 - sum_xq^2 / sum_qq.
    if (sum_qq > 0 && sum_xq * sum_xq > most * sum_qq) {
      most = sum_xq * sum_xq / sum_qq;
      best = sum_xq / sum_qq;
    }
  }
  return best;
}

// Packs 8 scales and 8 minima of 6 bits into 12 bytes (unpacked by gguf_blocks.cpp).
void pack_pairs(const std::array<int, 8>& s, const std::array<int, 8>& m, std::byte* packed) {
  for (size_t j = 0; j < 4; ++j) {
    packed[j] = byte_of(s[j] | (s[j + 4] >> 4) << 6);
    packed[j + 4] = byte_of(m[j] | (m[j + 4] >> 4) << 6);
    packed[j + 8] = byte_of((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
  }
}

}  // namespace

void encode_q8_0(const float* numbers, std::byte* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(numbers[i]));
  const float d = largest / 127.0f, inverse = inverse_of(d);
  store_half(d, block);
  for (int i = 0; i < 32; ++i)
    block[2 + i] = byte_of(static_cast<int>(std::lround(numbers[i] * inverse)));
}

void encode_q4_0(const float* numbers, std::byte* block) {
  const float d = extreme_of({numbers, 32}) / -8.0f, inverse = inverse_of(d);
  store_half(d, block);
  const auto code = [&](int i) {
    return std::min(15, static_cast<int>(numbers[i] * inverse + 8.5f));
  };
  for (int i = 0; i < 16; ++i) block[2 + i] = byte_of(code(i) | code(i + 16) << 4);
}

void encode_q4_k(const float* numbers, std::byte* block) {
  std::array<Affine, 8> fits;
  double scale = 0, minimum = 0;
  for (size_t j = 0; j < 8; ++j) {
    fits[j] = search_affine({numbers + 32 * j, 32});
    scale = std::max(scale, fits[j].scale);
    minimum = std::max(minimum, fits[j].minimum);
  }
  const float d = store_half(scale / 63, block), dmin = store_half(minimum / 63, block + 2);
  std::array<int, 8> s{}, m{};
  for (size_t j = 0; j < 8; ++j) {
    s[j] = scale > 0 ? nearest(63 * fits[j].scale / scale, 0, 63) : 0;
    m[j] = minimum > 0 ? nearest(63 * fits[j].minimum / minimum, 0, 63) : 0;
  }
  pack_pairs(s, m, block + 4);
  const auto code = [&](size_t i) {
    const size_t j = i / 32;
    const double step = static_cast<double>(d) * s[j], offset = static_cast<double>(dmin) * m[j];
    return step > 0 ? nearest((numbers[i] + offset) / step, 0, 15) : 0;
  };
  for (size_t j = 0; j < 8; j += 2)
    for (size_t i = 0; i < 32; ++i)
      block[16 + 16 * j + i] = byte_of(code(32 * j + i) | code(32 * j + 32 + i) << 4);
}

void encode_q6_k(const float* numbers, std::byte* block) {
  std::array<double, 16> fits{};
  double extreme = 0;
  for (size_t j = 0; j < 16; ++j) {
    fits[j] = search_symmetric({numbers + 16 * j, 16});
    if (std::abs(fits[j]) > std::abs(extreme)) extreme = fits[j];
  }
  std::memset(block, 0, 210);
  const double d = store_half(extreme / -128, block + 208);
  std::array<double, 16> steps{};
  for (size_t j = 0; j < 16; ++j) {
    const int s = extreme == 0 ? 0 : nearest(-128 * fits[j] / extreme, -128, 127);
    block[192 + j] = byte_of(s);
    steps[j] = d * s;
  }
  for (size_t i = 0; i < 256; ++i) {
    const double step = steps[i / 16];
    const int q = step == 0 ? 32 : nearest(numbers[i] / step, -32, 31) + 32;
    const size_t part = i / 128, quarter = i / 32 % 4, at = i % 32;
    block[64 * part + quarter % 2 * 32 + at] |= byte_of((q & 15) << (quarter < 2 ? 0 : 4));
    block[128 + 32 * part + at] |= byte_of((q >> 4) << (2 * quarter));
  }
}

}  // namespace trireme
