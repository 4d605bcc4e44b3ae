#include "engine/io/rounding_error.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace trireme {

void RoundingError::add(std::span<const float> exact, std::span<const float> rounded) {
  TRIREME_CHECK(exact.size() == rounded.size(), exact.size(), " numbers, ", rounded.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double w = exact[i], e = std::abs(static_cast<double>(rounded[i]) - w);
    squares += w * w;
    wrong += e * e;
    largest = std::max(largest, std::abs(w));
    farthest = std::max(farthest, e);
  }
}

void RoundingError::add(const RoundingError& other) {
  squares += other.squares;
  wrong += other.wrong;
  largest = std::max(largest, other.largest);
  farthest = std::max(farthest, other.farthest);
}

double RoundingError::relative() const { return squares == 0 ? 0 : std::sqrt(wrong / squares); }

double RoundingError::worst() const { return largest == 0 ? 0 : farthest / largest; }

}  // namespace trireme
