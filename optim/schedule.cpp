#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/core/error.h"

namespace trireme {
namespace {

double cosine(double from, double to, double x) {
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
}

double wsd_decayed(const SchedulerConfig& c, double peak, double x) {
  switch (c.wsd_decay) {
    case WsdDecay::kLinear: return peak + (c.min_lr - peak) * x;
    case WsdDecay::kCosine: return cosine(peak, c.min_lr, x);
    case WsdDecay::kExponential:
      return c.min_lr > 0 ? peak * std::pow(c.min_lr / peak, x) : peak * std::exp2(-10.0 * x);
    case WsdDecay::kMinusSqrt: return c.min_lr + (peak - c.min_lr) * (1.0 - std::sqrt(x));
  }
  TRIREME_UNREACHABLE("wsd decay ", static_cast<int>(c.wsd_decay));
}

double warmed_up(const SchedulerConfig& c, double peak, int64_t step) {
  const auto updates = static_cast<double>(step + 1), whole = static_cast<double>(c.warmup_steps);
  if (c.log_warmup) return peak * std::log(updates) / std::log(std::max(2.0, whole));
  return peak * updates / whole;
}

double deepspeed_rate(const SchedulerConfig& c, double peak, int64_t step, int64_t total_steps) {
  const int64_t w = std::max<int64_t>(2, c.warmup_steps);
  const int64_t length =
      std::max<int64_t>(1, (c.decay_steps > 0 ? c.decay_steps : total_steps) - w);
  if (step < w && c.log_warmup)
    return peak * std::log(static_cast<double>(step + 1)) / std::log(static_cast<double>(w));
  if (step < w) return peak * static_cast<double>(step) / static_cast<double>(w);
  const auto part = [&](int64_t done) {
    return std::min(1.0, static_cast<double>(done) / static_cast<double>(length));
  };
  switch (c.style) {
    case DecayStyle::kConstant: return peak;
    case DecayStyle::kLinear: return peak + (c.min_lr - peak) * part(step - w);
    case DecayStyle::kCosine: return cosine(peak, c.min_lr, part(step - w + 1));
    default: TRIREME_UNREACHABLE("DeepSpeed's decay style ", static_cast<int>(c.style));
  }
}

}  // namespace

double learning_rate(const SchedulerConfig& c, double peak, int64_t step, int64_t total_steps) {
  if (c.deepspeed) return deepspeed_rate(c, peak, step, total_steps);
  if (step < c.warmup_steps) return warmed_up(c, peak, step);
  const auto fraction = [&](int64_t begin, int64_t end) {
    if (step >= end) return 1.0;
    return std::max(0.0, static_cast<double>(step - begin) / static_cast<double>(end - begin));
  };
  const int64_t end = c.decay_steps > 0 ? c.decay_steps : total_steps;
  switch (c.style) {
    case DecayStyle::kConstant: return peak;
    case DecayStyle::kLinear: return peak + (c.min_lr - peak) * fraction(c.warmup_steps, end);
    case DecayStyle::kCosine: return cosine(peak, c.min_lr, fraction(c.warmup_steps, end));
    case DecayStyle::kInverseSqrt: {
      const double w = static_cast<double>(std::max<int64_t>(1, c.warmup_steps));
      return std::max(c.min_lr, peak * std::sqrt(w / std::max(w, static_cast<double>(step + 1))));
    }
    case DecayStyle::kWsd: {
      const int64_t length = c.decay_steps > 0 ? c.decay_steps : total_steps / 10;
      return wsd_decayed(c, peak, fraction(total_steps - length, total_steps));
    }
  }
  TRIREME_UNREACHABLE("decay style ", static_cast<int>(c.style));
}

}  // namespace trireme
