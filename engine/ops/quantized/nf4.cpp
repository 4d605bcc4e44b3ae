#include "engine/ops/quantized/nf4.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/quantized/nf4.kernels.h"

namespace trireme {
namespace {

// Values of scale codes 127 ... 255; code 127 - i is the negative of 127 + i.
constexpr float kScaleMagnitude[129] = {0.0f,           5.5000004e-07f,  3.2500002e-06f,
                                        7.75e-06f,      2.1249998e-05f,  4.375e-05f,
                                        6.625e-05f,     8.875e-05f,      1.5625001e-04f,
                                        2.6875004e-04f, 3.8125002e-04f,  4.9375003e-04f,
                                        6.062501e-04f,  7.1875006e-04f,  8.3125e-04f,
                                        9.437501e-04f,  1.2812499e-03f,  1.84375e-03f,
                                        2.40625e-03f,   2.96875e-03f,    3.5312497e-03f,
                                        4.09375e-03f,   4.6562497e-03f,  5.2187503e-03f,
                                        5.78125e-03f,   6.34375e-03f,    6.90625e-03f,
                                        7.46875e-03f,   8.03125e-03f,    8.59375e-03f,
                                        9.156249e-03f,  9.71875e-03f,    1.140625e-02f,
                                        1.421875e-02f,  1.703125e-02f,   1.9843752e-02f,
                                        2.265625e-02f,  2.546875e-02f,   2.8281251e-02f,
                                        3.109375e-02f,  3.390625e-02f,   3.6718752e-02f,
                                        3.953125e-02f,  4.2343747e-02f,  4.515625e-02f,
                                        4.796875e-02f,  5.078125e-02f,   5.359375e-02f,
                                        5.640625e-02f,  5.9218753e-02f,  6.203125e-02f,
                                        6.484375e-02f,  6.7656256e-02f,  7.0468746e-02f,
                                        7.328125e-02f,  7.609375e-02f,   7.890625e-02f,
                                        8.171876e-02f,  8.453125e-02f,   8.734375e-02f,
                                        9.015625e-02f,  9.2968754e-02f,  9.578126e-02f,
                                        9.859375e-02f,  1.07031256e-01f, 1.2109375e-01f,
                                        1.3515624e-01f, 1.4921875e-01f,  1.6328125e-01f,
                                        1.7734376e-01f, 1.9140625e-01f,  2.0546874e-01f,
                                        2.1953125e-01f, 2.3359375e-01f,  2.4765624e-01f,
                                        2.6171875e-01f, 2.7578127e-01f,  2.8984374e-01f,
                                        3.0390626e-01f, 3.1796873e-01f,  3.3203125e-01f,
                                        3.4609374e-01f, 3.6015624e-01f,  3.7421876e-01f,
                                        3.8828123e-01f, 4.0234375e-01f,  4.1640624e-01f,
                                        4.3046874e-01f, 4.4453126e-01f,  4.5859373e-01f,
                                        4.7265625e-01f, 4.867187e-01f,   5.0078124e-01f,
                                        5.148437e-01f,  5.289062e-01f,   5.4296875e-01f,
                                        5.570313e-01f,  5.710938e-01f,   5.8515626e-01f,
                                        5.992187e-01f,  6.1328125e-01f,  6.273438e-01f,
                                        6.414063e-01f,  6.5546876e-01f,  6.695312e-01f,
                                        6.8359375e-01f, 6.976563e-01f,   7.117188e-01f,
                                        7.2578126e-01f, 7.398437e-01f,   7.5390625e-01f,
                                        7.679688e-01f,  7.8203124e-01f,  7.9609376e-01f,
                                        8.101562e-01f,  8.2421875e-01f,  8.382813e-01f,
                                        8.5234374e-01f, 8.6640626e-01f,  8.804687e-01f,
                                        8.9453125e-01f, 9.085938e-01f,   9.2265624e-01f,
                                        9.3671876e-01f, 9.507812e-01f,   9.6484375e-01f,
                                        9.789063e-01f,  9.9296874e-01f,  1.0f};

cpu::Nf4Tables nf4_tables() {
  cpu::Nf4Tables tables;
  for (int i = 0; i < cpu::kNf4ValueCount; ++i) tables.value[i] = cpu::kNf4Value[i];
  for (int i = 0; i < 256; ++i)
    tables.scale[i] = i < 127 ? -kScaleMagnitude[127 - i] : kScaleMagnitude[i - 127];
  return tables;
}

Shape blocks_of(const ConstTensor& w) { return {w.size(0), ceil_div(w.size(1), kNf4Block)}; }

void check_nf4(const char* op, const ConstTensor& w, const ConstTensor& codes) {
  TRIREME_CHECK(w.rank() == 2 && w.size(1) % 2 == 0, op, ": w is ", w.shape(),
                ", expected (N, K) with an even K");
  check_contiguous(op, "w", w);
  check_operand(op, "codes", codes, DType::kU8, {w.size(0), w.size(1) / 2});
}

void check_scales(const Nf4Scales& s, const Shape& blocks) {
  const char* const op = "dequantize_nf4";
  if (s.scale.present()) return check_operand(op, "scale", s.scale, DType::kF32, blocks);
  check_operand(op, "scale codes", s.codes, DType::kU8, blocks);
  check_operand(op, "offset", s.offset, DType::kF32, {1});
  const int64_t stride = s.stride == 0 ? blocks[1] : s.stride;
  const int64_t end = blocks[0] == 0 ? 0 : s.first + (blocks[0] - 1) * stride + blocks[1];
  check_operand(op, "groups", s.groups, DType::kF32, {s.groups.numel()});
  TRIREME_CHECK(s.first >= 0 && stride >= blocks[1] && end <= s.groups.numel() * kNf4ScaleGroup, op,
                ": scales ", s.first, " ... ", end, " of ", s.groups.numel(), " groups");
}

template <class T>
const T* pointer(const ConstTensor& t) {
  return t.present() ? t.as<T>() : nullptr;
}

}  // namespace

void quantize_nf4(Ctx& ctx, const Tensor& codes, const Tensor& scale, const ConstTensor& w) {
  check_nf4("quantize_nf4", w, codes);
  check_operand("quantize_nf4", "scale", scale, DType::kF32, blocks_of(w));
  if (ctx.planning() || w.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float("quantize_nf4", w.dtype(), [&]<class T>() {
    const cpu::Nf4Weight<const T> args{w.as<T>(), codes.as<uint8_t>(), scale.as<float>(), w.size(0),
                                       w.size(1)};
    if (ctx.gpu != nullptr) return cuda::quantize_nf4<T>(*ctx.gpu, args);
    TRIREME_KERNEL(quantize_nf4<T>)(args, ctx.threads);
  });
}

void dequantize_nf4(Ctx& ctx, const Tensor& w, const ConstTensor& codes, const Nf4Scales& scales) {
  check_nf4("dequantize_nf4", w, codes);
  const Shape blocks = blocks_of(w);
  check_scales(scales, blocks);
  if (ctx.planning() || w.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const cpu::Nf4Tables tables = nf4_tables();
  const cpu::Nf4ScaleView view{pointer<float>(scales.scale),
                               pointer<uint8_t>(scales.codes),
                               pointer<float>(scales.groups),
                               pointer<float>(scales.offset),
                               scales.first,
                               scales.stride == 0 ? blocks[1] : scales.stride};
  dispatch_float("dequantize_nf4", w.dtype(), [&]<class T>() {
    const cpu::Nf4Decode<T> args{w.as<T>(), codes.as<uint8_t>(), view, w.size(0), w.size(1)};
    if (ctx.gpu != nullptr) return cuda::dequantize_nf4<T>(*ctx.gpu, args, tables);
    TRIREME_KERNEL(dequantize_nf4<T>)(args, tables, ctx.threads);
  });
}

void quantize_nf4_scales(const Tensor& codes, const Tensor& groups, const Tensor& offset,
                         const ConstTensor& scale) {
  const char* const op = "quantize_nf4_scales";
  const int64_t n = scale.numel();
  check_operand(op, "scale", scale, DType::kF32, {n});
  check_operand(op, "codes", codes, DType::kU8, {n});
  check_operand(op, "groups", groups, DType::kF32, {ceil_div(n, kNf4ScaleGroup)});
  check_operand(op, "offset", offset, DType::kF32, {1});
  const cpu::Nf4Tables tables = nf4_tables();
  const float* const x = scale.as<float>();
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const auto mean = static_cast<float>(n == 0 ? 0.0 : sum / static_cast<double>(n));
  *offset.as<float>() = mean;
  for (int64_t begin = 0; begin < n; begin += kNf4ScaleGroup) {
    const int64_t end = std::min(n, begin + kNf4ScaleGroup);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i] - mean));
    groups.as<float>()[begin / kNf4ScaleGroup] = largest;
    const float inverse = cpu::nf4_inverse(largest);
    for (int64_t i = begin; i < end; ++i) {
      const float value = (x[i] - mean) * inverse;
      int low = 0, high = 255;  // number of midpoints between neighbours below the value
      while (low < high) {
        const int middle = (low + high) / 2;
        const float bound = (tables.scale[middle] + tables.scale[middle + 1]) / 2;
        if (bound < value)
          low = middle + 1;
        else
          high = middle;
      }
      codes.as<uint8_t>()[i] = static_cast<uint8_t>(low);
    }
  }
}

}  // namespace trireme
