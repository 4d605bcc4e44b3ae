// Error of rounded numbers w' relative to the exact numbers w.
#pragma once

#include <span>

namespace trireme {

struct RoundingError {
  double sum_of_squares = 0;  // sum of w^2
  double squared_error = 0;   // sum of (w' - w)^2
  double max_abs = 0;         // maximum of |w|
  double max_error = 0;       // maximum of |w' - w|

  // Adds the errors of `rounded`, which has as many numbers as `exact`.
  void add(std::span<const float> exact, std::span<const float> rounded);
  void add(const RoundingError& other);
  // sqrt(squared_error / sum_of_squares): relative root mean square; 0 if all w are 0.
  double relative() const;
  double worst() const;  // max_error / max_abs; 0 if all w are 0
};

}  // namespace trireme
