// How far rounded numbers are from those they stand for.
#pragma once

#include <span>

namespace trireme {

struct RoundingError {
  double squares = 0;   // sum of w^2
  double wrong = 0;     // sum of (w' - w)^2
  double largest = 0;   // of |w|
  double farthest = 0;  // of |w' - w|

  // Of as many rounded numbers.
  void add(std::span<const float> exact, std::span<const float> rounded);
  void add(const RoundingError& other);
  double relative() const;  // sqrt(wrong / squares), the root mean square's; 0 where all are 0
  double worst() const;     // farthest / largest
};

}  // namespace trireme
