// Ctx: everything an op or a layer needs besides its operands. A rank has one, or one per model or
// setup task. Passed by reference.
#pragma once

#include <functional>
#include <memory>

#include "engine/core/memory.h"
#include "engine/core/profile.h"
#include "engine/core/random.h"
#include "engine/device/context.h"

namespace trireme {

class GemmEngine;  // engine/ops/gemm/gemm.h: library handles and cached primitives of this rank

// Only kTrain has dropout, router noise and a limited expert capacity.
enum class Mode { kTrain, kEval, kInfer };

struct Ctx {
  // gpu: the rank's device, which must outlive this object; nullptr: the CPU. The arena is in that
  // device's memory.
  Ctx(int threads, const char* arena_name, cuda::Context* gpu = nullptr);
  ~Ctx();
  Ctx(const Ctx&) = delete;
  Ctx& operator=(const Ctx&) = delete;

  int threads;         // width of this rank's OpenMP team
  cuda::Context* gpu;  // location of every operand of every op; nullptr: the host
  Arena arena;         // activations and scratch
  std::unique_ptr<GemmEngine> gemm;
  Mode mode = Mode::kTrain;
  uint64_t seed = 0;           // of initial weights, dropout and router noise
  int64_t step = 0;            // training step: part of every RandomKey of dropout and noise
  Profile* profile = nullptr;  // null: ops are not timed
  // Called by tap() with the name and the value of a layer's intermediate, except in planning runs.
  // Empty: none.
  std::function<void(const char*, const ConstTensor&)> observer;

  // True in a planning run: an op checks its operands, allocates its scratch and returns.
  bool planning() const { return arena.planning(); }
  DeviceType device() const { return gpu == nullptr ? DeviceType::kCpu : DeviceType::kCuda; }
  Memory memory() const { return gpu == nullptr ? Memory::kHost : Memory::kDevice; }
  Activation allocate(const char* name, DType dtype, const Shape& shape) {
    return arena.allocate(name, dtype, shape);
  }
  void tap(const char* name, const ConstTensor& value) const {
    if (observer && !arena.planning()) observer(name, value);
  }
};

}  // namespace trireme
