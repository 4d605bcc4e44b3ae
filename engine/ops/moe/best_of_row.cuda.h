// Search by one warp for the largest, second largest, ... value of a row. For CUDA sources only.
#pragma once

#include "engine/ops/backend/kernel.cuda.h"

namespace trireme::cuda {

// Position of an element in the order (value descending, index ascending). Index -1 is no element:
// as an argument it is before all elements, as a result it means that there is none.
template <class T>
struct Position {
  T value = 0;
  int32_t index = -1;
  __device__ bool follows(const Position& p) const {
    return p.index < 0 || value < p.value || (value == p.value && index > p.index);
  }
  __device__ bool precedes(const Position& p) const {
    return index >= 0 && (p.index < 0 || value > p.value || (value == p.value && index < p.index));
  }
};

// Returns the first of the lanes' positions, in every lane; index -1 if no lane has an element.
template <class T>
__device__ Position<T> warp_first(Position<T> x) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    Position<T> other;
    other.value = __shfl_xor_sync(0xffffffffu, x.value, mask);
    other.index = __shfl_xor_sync(0xffffffffu, x.index, mask);
    if (other.precedes(x)) x = other;
  }
  return x;
}

// Returns the first position after `before` in a row of n values, in every lane; index -1 if there
// is none. A NaN has no position. Writes of the row must be visible to all lanes.
template <class T>
__device__ Position<T> next_position(const T* values, int64_t n, const Position<T>& before) {
  Position<T> best;
#pragma unroll 1
  for (int64_t i = lane_of_warp(); i < n; i += kWarp) {
    const Position<T> p{values[i], static_cast<int32_t>(i)};
    if (p.value == p.value && p.follows(before) && p.precedes(best)) best = p;
  }
  return warp_first(best);
}

}  // namespace trireme::cuda
