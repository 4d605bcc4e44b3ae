#include "transformer/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/core/error.h"
#include "engine/ops/attention/rotary.h"

namespace trireme {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

double dynamic_base(double base, int64_t width, double factor, int64_t positions, int64_t length) {
  TRIREME_CHECK(width > 2, "dynamic rotary scaling: heads of width ", width,
                ", expected more than 2");
  const double stretch =
      static_cast<double>(std::max(positions, length)) / static_cast<double>(positions);
  const double exponent = static_cast<double>(width) / static_cast<double>(width - 2);
  return base * std::pow(factor * stretch - (factor - 1), exponent);
}

void scale_llama3(const RopeScaling& s, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(s.original_positions);
  for (double& f : frequencies) {
    const double wavelength = kTurn / f;
    if (wavelength < original / s.high_frequency_factor) continue;
    // Equal factors leave no band to blend in.
    if (wavelength > original / s.low_frequency_factor ||
        s.low_frequency_factor == s.high_frequency_factor) {
      f /= s.factor;
      continue;
    }
    const double smooth = (original / wavelength - s.low_frequency_factor) /
                          (s.high_frequency_factor - s.low_frequency_factor);
    f = (1 - smooth) * f / s.factor + smooth * f;
  }
}

void scale_yarn(const RopeScaling& s, double base, int64_t width,
                std::vector<double>& frequencies) {
  // Fractional index of the frequency that makes this many turns over the original context.
  const auto place = [&](double turns) {
    return static_cast<double>(width) *
           std::log(static_cast<double>(s.original_positions) / (turns * kTurn)) /
           (2 * std::log(base));
  };
  double low = place(s.beta_fast), high = place(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(width - 1));
  if (low == high) high += 0.001;  // as in HuggingFace: a step instead of a ramp
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

void scale_longrope(const RopeScaling& s, int64_t length, std::vector<double>& frequencies) {
  const std::vector<double>& factors =
      length > s.original_positions ? s.long_factors : s.short_factors;
  TRIREME_CHECK(factors.size() == frequencies.size(), "longrope: ", factors.size(),
                " factors, expected one for each of ", frequencies.size(), " rotary frequencies");
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

double longrope_attention_factor(const RopeScaling& s) {
  if (s.attention_factor > 0) return s.attention_factor;
  if (s.factor <= 1 || s.original_positions <= 1) return 1;
  return std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_positions)));
}

double yarn_attention_factor(const RopeScaling& s) {
  if (s.attention_factor > 0) return s.attention_factor;
  if (s.mscale != 0 && s.mscale_all_dim != 0)
    return yarn_scale(s.factor, s.mscale) / yarn_scale(s.factor, s.mscale_all_dim);
  return yarn_scale(s.factor, 1);
}

}  // namespace

double yarn_scale(double factor, double coefficient) {
  return factor <= 1 ? 1.0 : 0.1 * coefficient * std::log(factor) + 1.0;
}

RotaryFrequencies rotary_frequencies(double base, int64_t width, const RopeScaling& scaling,
                                     int64_t positions, int64_t length) {
  TRIREME_CHECK(positions > 0 && length >= 0, "rotary frequencies: ", positions,
                " positions and a length of ", length, ", expected at least 1 position");
  if (scaling.type == RopeType::kDynamic)
    base = dynamic_base(base, width, scaling.factor, positions, length);
  RotaryFrequencies out{plain_rotary_frequencies(base, width), 1.0};
  switch (scaling.type) {
    case RopeType::kDefault:
    case RopeType::kDynamic: break;
    case RopeType::kLinear:
      for (double& f : out.inverse) f /= scaling.factor;
      break;
    case RopeType::kLlama3: scale_llama3(scaling, out.inverse); break;
    case RopeType::kYarn:
      scale_yarn(scaling, base, width, out.inverse);
      out.attention_factor = yarn_attention_factor(scaling);
      break;
    case RopeType::kLongRope:
      scale_longrope(scaling, length, out.inverse);
      out.attention_factor = longrope_attention_factor(scaling);
      break;
  }
  return out;
}

int64_t longest_sequence(const RopeScaling& scaling, int64_t positions) {
  constexpr double kMax = 0x1p62;  // a hostile factor must not leave int64
  const auto times = [&](int64_t n) {
    return static_cast<int64_t>(
        std::min(kMax, std::floor(scaling.factor * static_cast<double>(n))));
  };
  switch (scaling.type) {
    case RopeType::kLinear:
      if (scaling.original_positions > 0) return positions;
      [[fallthrough]];
    case RopeType::kDynamic: return std::max(positions, times(positions));
    case RopeType::kYarn: return std::max(positions, times(scaling.original_positions));
    default: return positions;
  }
}

}  // namespace trireme
