#include "engine/io/rounding_error.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace trireme {

void RoundingError::add(std::span<const float> exact, std::span<const float> rounded) {
  TRIREME_CHECK(exact.size() == rounded.size(), exact.size(), " numbers, ", rounded.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double w = exact[i], e = std::abs(static_cast<double>(rounded[i]) - w);
    sum_of_squares += w * w;
    squared_error += e * e;
    max_abs = std::max(max_abs, std::abs(w));
    max_error = std::max(max_error, e);
  }
}

void RoundingError::add(const RoundingError& other) {
  sum_of_squares += other.sum_of_squares;
  squared_error += other.squared_error;
  max_abs = std::max(max_abs, other.max_abs);
  max_error = std::max(max_error, other.max_error);
}

double RoundingError::relative() const {
  return sum_of_squares == 0 ? 0 : std::sqrt(squared_error / sum_of_squares);
}

double RoundingError::worst() const { return max_abs == 0 ? 0 : max_error / max_abs; }

}  // namespace trireme
