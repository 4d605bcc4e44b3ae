// Kernels of engine/ops/moe/router.h; shapes as there, with rows = T and count = E. T: float or
// double.
#pragma once

#include "engine/core/device_memory.h"
#include "engine/core/dtype.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

inline constexpr int64_t kMaxRouterGroups = 64;
inline constexpr double kRouterWeightFloor = 1e-20;  // added to the divisor of weights

template <class T>
struct RouterForward {
  T* scores;
  int32_t* experts;
  T* weights;
  const T* logits;
  const T* bias;         // or null
  const uint8_t* valid;  // or null
  int64_t rows, count, k;
  int64_t groups, kept_groups;
  T scale;
  bool sigmoid, normalize;
  bool by_logits;  // choose by logits; only without a bias
};

template <class T>
struct RouterBackward {
  T* d_logits;
  const T *d_weights, *scores, *logits;
  const int32_t* experts;
  const double* probability;  // RouterLossGradients: (S, count), or null
  const int32_t* segments;    // (rows), or null: all in segment 0
  const double* importance;   // (count), or null
  int64_t rows, count, k;
  T scale;
  const double* z;  // of RouterLossGradients: (1), or null
  bool sigmoid, normalize;
};

TRIREME_CPU_KERNEL(router_forward, (const RouterForward<T>& a, int threads))
TRIREME_CPU_KERNEL(router_backward, (const RouterBackward<T>& a, int threads))

}  // namespace trireme::cpu

// GPU kernels, with the arguments of the CPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

// T: float or double.
template <class T>
TRIREME_CUDA_DECL void router_forward(Context& gpu, const cpu::RouterForward<T>& a);
template <class T>
TRIREME_CUDA_DECL void router_backward(Context& gpu, const cpu::RouterBackward<T>& a);

}  // namespace trireme::cuda
