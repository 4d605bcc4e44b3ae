#include "engine/ops/moe/router_noise.h"

#include <cmath>
#include <numbers>

#include "engine/core/normal_number.h"
#include "engine/core/parallel_for.h"
#include "engine/ops/moe/router_dtype.h"
#include "engine/ops/moe/router_noise.cuda.h"
#include "engine/ops/rows/row_blocks.h"

namespace trireme {
namespace {

constexpr double kNoiseFloor = 0.01;
constexpr int64_t kGrain = 256;  // normal numbers worth a thread

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }
double sigma(double raw) { return softplus(raw) + kNoiseFloor; }

// The k-th and the (k + 1)-th largest of a row, ties by lower index first.
struct Thresholds {
  int64_t in = 0;   // index of the (k + 1)-th: threshold for a chosen expert
  int64_t out = 0;  // index of the k-th: threshold for any other
  double in_value = 0, out_value = 0;
};

template <class T>
Thresholds thresholds(const T* h, int64_t count, int64_t k) {
  Thresholds t;
  int64_t last = -1;
  for (int64_t rank = 0; rank <= k; ++rank) {
    int64_t best = -1;
    for (int64_t e = 0; e < count; ++e) {
      const bool later = last < 0 || h[e] < h[last] || (h[e] == h[last] && e > last);
      if (later && (best < 0 || h[e] > h[best])) best = e;
    }
    last = best < 0 ? 0 : best;  // a row of NaN
    if (rank == k - 1) t.out = last;
    if (rank == k) t.in = last;
  }
  t.in_value = static_cast<double>(h[t.in]);
  t.out_value = static_cast<double>(h[t.out]);
  return t;
}

// Whether e is one of the k best: not after the k-th in the order.
template <class T>
bool chosen(const T* h, int64_t e, const Thresholds& t) {
  return h[e] > h[t.out] || (h[e] == h[t.out] && e <= t.out);
}

void check(const char* op, const ConstTensor& logits, std::initializer_list<ConstTensor> like,
           const ConstTensor& valid) {
  TRIREME_CHECK(logits.rank() == 2, op, ": logits are ", logits.shape(), ", expected (T, E)");
  TRIREME_CHECK(logits.dtype() == DType::kF32 || logits.dtype() == DType::kF64, op, ": logits are ",
                logits.dtype(), ", expected float32 or float64");
  check_contiguous(op, "logits", logits);
  for (const ConstTensor& t : like) check_operand(op, "operand", t, logits.dtype(), logits.shape());
  if (valid.present()) check_operand(op, "valid", valid, DType::kU8, {logits.size(0)});
}

bool is_valid(const ConstTensor& valid, int64_t t) {
  return !valid.present() || valid.as<uint8_t>()[t] != 0;
}

// One token: adds the gradient of the load to dl (by l), dh (by H, already included in dl) and ds
// (by sigma).
template <class T>
void load_backward(const T* h, const T* l, const T* r, const double* d_load, int64_t count,
                   int64_t k, double* dh, double* dl, double* ds) {
  const Thresholds t = thresholds(h, count, k);
  for (int64_t e = 0; e < count; ++e) {
    const bool in = chosen(h, e, t);
    const double s = sigma(static_cast<double>(r[e]));
    const double z = (static_cast<double>(l[e]) - (in ? t.in_value : t.out_value)) / s;
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    const double slope = d_load[e] * density / s;
    dl[e] += slope;
    ds[e] -= slope * z;
    dh[in ? t.in : t.out] -= slope;
  }
}

}  // namespace

void noisy_logits(Ctx& ctx, const Tensor& noisy, const Tensor& noise, const ConstTensor& logits,
                  const ConstTensor& raw, const ConstTensor& rows, const RandomKey& key) {
  constexpr const char* kOp = "noisy_logits";
  check(kOp, logits, {noisy, noise, raw}, {});
  check_operand(kOp, "rows", rows, DType::kI64, {logits.size(0)});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  const int64_t count = logits.size(1);
  dispatch_router_dtype(logits.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::noisy_logits<T>(*ctx.gpu, {.noisy = noisy.as<T>(),
                                              .noise = noise.as<T>(),
                                              .logits = logits.as<T>(),
                                              .raw = raw.as<T>(),
                                              .rows = rows.as<int64_t>(),
                                              .tokens = logits.size(0),
                                              .count = count,
                                              .key = key});
    parallel_for(ctx.threads, logits.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = rows.as<int64_t>()[i / count] * count + i % count;
        const double z = philox_normal(key, static_cast<uint64_t>(index));
        noise.as<T>()[i] = static_cast<T>(z);
        noisy.as<T>()[i] = static_cast<T>(static_cast<double>(logits.as<T>()[i]) +
                                          z * sigma(static_cast<double>(raw.as<T>()[i])));
      }
    });
  });
}

void noisy_load(Ctx& ctx, const Tensor& load, const ConstTensor& noisy, const ConstTensor& logits,
                const ConstTensor& raw, const ConstTensor& valid, int64_t k) {
  constexpr const char* kOp = "noisy_load";
  check(kOp, logits, {noisy, raw}, valid);
  const int64_t rows = logits.size(0), count = logits.size(1);
  check_operand(kOp, "load", load, DType::kF64, {count});
  const int64_t blocks = ctx.gpu != nullptr ? 4 * row_blocks(ctx, rows) : 0;  // warps
  const Activation partial = ctx.allocate("router.partial_load", DType::kF64, {blocks, count});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  auto* out = load.as<double>();
  dispatch_router_dtype(logits.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::noisy_load<T>(*ctx.gpu,
                                 {.load = out,
                                  .noisy = noisy.as<T>(),
                                  .logits = logits.as<T>(),
                                  .raw = raw.as<T>(),
                                  .valid = valid.present() ? valid.as<uint8_t>() : nullptr,
                                  .tokens = rows,
                                  .count = count,
                                  .k = k,
                                  .partial = partial->as<double>(),
                                  .blocks = blocks});
    for (int64_t t = 0; t < rows; ++t) {
      if (!is_valid(valid, t)) continue;
      if (k >= count) {
        for (int64_t e = 0; e < count; ++e) out[e] += 1;
        continue;
      }
      const T *h = noisy.as<T>() + t * count, *l = logits.as<T>() + t * count;
      const T* r = raw.as<T>() + t * count;
      const Thresholds tau = thresholds(h, count, k);
      for (int64_t e = 0; e < count; ++e) {
        const double bar = chosen(h, e, tau) ? tau.in_value : tau.out_value;
        const double z = (static_cast<double>(l[e]) - bar) / sigma(static_cast<double>(r[e]));
        out[e] += std::erfc(-z / std::numbers::sqrt2) / 2;
      }
    }
  });
}

void noisy_backward(Ctx& ctx, const Tensor& d_logits, const Tensor& d_raw, const ConstTensor& noise,
                    const ConstTensor& noisy, const ConstTensor& logits, const ConstTensor& raw,
                    const ConstTensor& d_load, const ConstTensor& valid, int64_t k) {
  constexpr const char* kOp = "noisy_backward";
  check(kOp, logits, {d_logits, d_raw, noise, noisy, raw}, valid);
  const int64_t rows = logits.size(0), count = logits.size(1);
  check_operand(kOp, "d_load", d_load, DType::kF64, {count});
  const Activation scratch = ctx.allocate("router.noise_gradients", DType::kF64,
                                          {ctx.gpu != nullptr ? 0 : rows, 3, count});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_router_dtype(logits.dtype(), [&]<class T>() {
    if (ctx.gpu != nullptr)
      return cuda::noisy_backward<T>(*ctx.gpu,
                                     {.d_logits = d_logits.as<T>(),
                                      .d_raw = d_raw.as<T>(),
                                      .noise = noise.as<T>(),
                                      .noisy = noisy.as<T>(),
                                      .logits = logits.as<T>(),
                                      .raw = raw.as<T>(),
                                      .d_load = d_load.as<double>(),
                                      .valid = valid.present() ? valid.as<uint8_t>() : nullptr,
                                      .tokens = rows,
                                      .count = count,
                                      .k = k});
    parallel_for(ctx.threads, rows, kGrain / (count + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        T *d = d_logits.as<T>() + t * count, *dr = d_raw.as<T>() + t * count;
        const T *z = noise.as<T>() + t * count, *r = raw.as<T>() + t * count;
        double* dh = scratch->as<double>() + t * 3 * count;
        double *dl = dh + count, *ds = dl + count;
        for (int64_t e = 0; e < count; ++e) {
          dh[e] = static_cast<double>(d[e]);
          dl[e] = ds[e] = 0;
        }
        if (is_valid(valid, t) && k < count)
          load_backward(noisy.as<T>() + t * count, logits.as<T>() + t * count, r,
                        d_load.as<double>(), count, k, dh, dl, ds);
        for (int64_t e = 0; e < count; ++e) {
          const double slope = 1 / (1 + std::exp(-static_cast<double>(r[e])));
          d[e] = static_cast<T>(dh[e] + dl[e]);
          dr[e] = static_cast<T>((dh[e] * static_cast<double>(z[e]) + ds[e]) * slope);
        }
      }
    });
  });
}

}  // namespace trireme
