#include "engine/core/add_scaled.h"

namespace trireme {

void add_scaled(float* y, const float* x, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

}  // namespace trireme
