// Error of rounded numbers w' relative to the exact numbers w.
#pragma once

#include <span>

namespace trireme {

struct RoundingError {
  double squares = 0;   // sum of w^2
  double wrong = 0;     // sum of (w' - w)^2
  double largest = 0;   // maximum of |w|
  double farthest = 0;  // maximum of |w' - w|

  // Adds the errors of `rounded`, which has as many numbers as `exact`.
  void add(std::span<const float> exact, std::span<const float> rounded);
  void add(const RoundingError& other);
  double relative() const;  // sqrt(wrong / squares): relative root mean square; 0 if all are 0
  double worst() const;     // farthest / largest; 0 if all are 0
};

}  // namespace trireme
