#include "engine/ops/attention/rotary.h"

#include <cmath>

#include "engine/ops/attention/rotary.kernels.h"
#include "engine/ops/backend/index_check.h"
#include "engine/ops/backend/pick_kernel.h"

namespace trireme {
namespace {

template <class F>
void fill_table(F* table, int64_t positions, std::span<const double> frequencies,
                std::span<const double> factors) {
  const int64_t half = std::ssize(frequencies), width = 2 * half;
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      const double factor = factors[static_cast<size_t>(p) % factors.size()];
      table[p * width + i] = static_cast<F>(factor * std::cos(angle));
      table[p * width + half + i] = static_cast<F>(factor * std::sin(angle));
    }
  }
}

}  // namespace

std::vector<double> plain_rotary_frequencies(double base, int64_t width) {
  TRIREME_CHECK(base > 0, "rotary frequencies: base is ", base, ", expected a positive number");
  TRIREME_CHECK(width >= 0 && width % 2 == 0, "rotary frequencies: width is ", width,
                ", expected an even number");
  std::vector<double> out;
  for (int64_t i = 0; i < width / 2; ++i)
    out.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width)));
  return out;
}

void rotary_table(const Tensor& cos_sin, std::span<const double> frequencies,
                  std::span<const double> factors) {
  TRIREME_CHECK(cos_sin.rank() == 2 && cos_sin.size(1) % 2 == 0, "rotary_table: cos_sin is ",
                cos_sin.shape(), ", expected (P, D) with an even D");
  TRIREME_CHECK(cos_sin.size(1) == 2 * std::ssize(frequencies),
                "rotary_table: ", frequencies.size(),
                " frequencies, expected half the columns of the table ", cos_sin.shape());
  TRIREME_CHECK(!factors.empty(), "rotary_table: expected at least one factor");
  check_contiguous("rotary_table", "cos_sin", cos_sin);
  if (cos_sin.dtype() == DType::kF64)
    fill_table(cos_sin.as<double>(), cos_sin.size(0), frequencies, factors);
  else
    fill_table(cos_sin.as<float>(), cos_sin.size(0), frequencies, factors);
}

void rotary(Ctx& ctx, const Tensor& x, const ConstTensor& cos_sin, const ConstTensor& positions,
            bool inverse, RotaryPairs pairs) {
  TRIREME_CHECK(x.rank() == 3 && x.size(2) % 2 == 0 && (x.size(2) == 0 || x.stride(2) == 1),
                "rotary: x is ", x.shape(), ", expected (T, H, D) with an even D of unit stride");
  TRIREME_CHECK(cos_sin.rank() == 2, "rotary: cos_sin is ", cos_sin.shape(), ", expected (P, D)");
  check_operand("rotary", "cos_sin", cos_sin, sum_dtype(x.dtype()), {cos_sin.size(0), x.size(2)});
  check_operand("rotary", "positions", positions, DType::kI32, {x.size(0)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  if (ctx.gpu == nullptr) check_indices("rotary", "positions", positions, cos_sin.size(0));
  dispatch_float("rotary", x.dtype(), [&]<class T>() {
    using F = compute_t<T>;
    const cpu::Rotary<T> args{.x = x.as<T>(),
                              .cos_sin = cos_sin.as<F>(),
                              .positions = positions.as<int32_t>(),
                              .entries = cos_sin.size(0),
                              .rows = x.size(0),
                              .heads = x.size(1),
                              .width = x.size(2),
                              .row_stride = x.stride(0),
                              .head_stride = x.stride(1),
                              .interleaved = pairs == RotaryPairs::kInterleaved,
                              .direction = inverse ? F{-1} : F{1}};
    if (ctx.gpu != nullptr) return cuda::rotary<T>(*ctx.gpu, args);
    TRIREME_KERNEL(rotary<T>)(args, ctx.threads);
  });
}

}  // namespace trireme
