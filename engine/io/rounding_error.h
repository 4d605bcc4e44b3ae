// Error of rounded numbers relative to the exact ones.
#pragma once

#include <span>

namespace trireme {

struct RoundingError {
  double squares = 0;   // sum of w^2
  double wrong = 0;     // sum of (w' - w)^2
  double largest = 0;   // of |w|
  double farthest = 0;  // of |w' - w|

  // Adds the errors of as many rounded numbers.
  void add(std::span<const float> exact, std::span<const float> rounded);
  void add(const RoundingError& other);
  double relative() const;  // sqrt(wrong / squares): relative root mean square; 0 if all are 0
  double worst() const;     // farthest / largest
};

}  // namespace trireme
