// Decision of a step on the emulated GPU: bitwise equal to the CPU's, and without host
// synchronization between the gradients and the updated parameters.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "engine/ops/optimizer/optimizer_step.h"
#include "optim/step_control.h"
#include "tests/emulator/emulator.h"

namespace trireme::test {
namespace {

class Device {
 public:
  Device() : ctx(1, "step", gpu_.get()) {}
  // Device tensor with this content. Its memory is kept until the end.
  template <class T>
  Tensor tensor(DType dtype, const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    buffers_.emplace_back("operand", bytes, Memory::kDevice);
    cuda::upload(*gpu_, buffers_.back().data(), values.data(), bytes);
    return buffers_.back().tensor(dtype, {bytes / dtype_size(dtype)});
  }
  template <class T>
  T read(const Tensor& t) {
    T value{};
    cuda::download(*gpu_, &value, t.raw(), sizeof value);
    return value;
  }

 private:
  std::unique_ptr<cuda::Context> gpu_ = cuda::open(0);
  std::vector<Buffer> buffers_;

 public:
  Ctx ctx;
};

Tensor on_host(double& value) { return {&value, DType::kF64, Shape{1}}; }

void expect_same(const StepState& got, const StepState& want) {
  EXPECT_EQ(got.loss_scale, want.loss_scale);
  EXPECT_EQ(got.updates, want.updates);
  EXPECT_EQ(got.skipped, want.skipped);
  EXPECT_EQ(got.consecutive_skips, want.consecutive_skips);
  EXPECT_EQ(got.good_since_growth, want.good_since_growth);
  EXPECT_EQ(got.hysteresis_left, want.hysteresis_left);
  EXPECT_TRUE(got.grad_norm == want.grad_norm ||
              (std::isnan(got.grad_norm) && std::isnan(want.grad_norm)));
}

TEST(StepOnGpu, DecidesAsTheCpu) {
  Device device;
  Ctx cpu(1, "step");
  StepDecision decision;
  decision.clip = 2.0;
  decision.learning_rate = 0.25;
  decision.dynamic_scale = true;
  decision.loss_scale.window = 2;
  StepState state = initial_step_state(DType::kF16, decision.loss_scale);
  const Tensor there = device.tensor(DType::kU8, std::vector<StepState>{state});
  double sums[] = {1.0, 1e12, INFINITY, 4.0, -1.0, INFINITY, 2e10, 3.0, 5.0, 7.0};
  double losses[] = {1.0, 2.0, 3.0, static_cast<double>(NAN), 1.0, INFINITY, 2.0, 1.0, 1.0, 1.0};
  for (size_t i = 0; i < std::size(sums); ++i) {
    SCOPED_TRACE(i);
    StepScalars scalars;
    decide_step(cpu, Tensor(&scalars, DType::kU8, Shape{kStepScalarsBytes}),
                Tensor(&state, DType::kU8, Shape{kStepStateBytes}), on_host(sums[i]),
                on_host(losses[i]), decision);
    const Tensor outcome = device.tensor(DType::kU8, std::vector<StepScalars>(1));
    decide_step(device.ctx, outcome, there, device.tensor(DType::kF64, std::vector{sums[i]}),
                device.tensor(DType::kF64, std::vector{losses[i]}), decision);
    const auto decided = device.read<StepScalars>(outcome);
    EXPECT_EQ(decided.grad_multiplier, scalars.grad_multiplier);
    EXPECT_EQ(decided.learning_rate, scalars.learning_rate);
    EXPECT_EQ(decided.count, scalars.count);
    EXPECT_EQ(decided.skip, scalars.skip);
    expect_same(device.read<StepState>(there), state);
  }
  EXPECT_GT(state.skipped, 0);
  EXPECT_GT(state.updates, 2);
}

TEST(StepOnGpu, UpdatesWithoutAWaitOfTheHost) {
  Device device;
  const std::vector<float> ones(300, 1.0f);
  const Tensor param = device.tensor(DType::kF32, ones), grad = device.tensor(DType::kF32, ones);
  const Tensor m = device.tensor(DType::kF32, ones), v = device.tensor(DType::kF32, ones);
  const Tensor sum = device.tensor(DType::kF64, std::vector{0.0});
  const Tensor loss = device.tensor(DType::kF64, std::vector{1.0});
  const Tensor scalars = device.tensor(DType::kU8, std::vector<StepScalars>(1));
  const Tensor state = device.tensor(DType::kU8, std::vector<StepState>(1));
  StepDecision decision;
  decision.learning_rate = 0.5;
  const ArenaPlan plan = [&] {
    device.ctx.arena.begin_planning();
    sum_of_squares(device.ctx, sum, grad);
    return device.ctx.arena.end_planning();
  }();
  device.ctx.arena.reserve(plan.capacity);
  cuda::synchronize(*device.ctx.gpu, device.ctx.gpu->main);
  const int64_t before = emulator::counters().synchronized();
  device.ctx.arena.begin_step(plan);
  sum_of_squares(device.ctx, sum, grad);
  decide_step(device.ctx, scalars, state, sum, loss, decision);
  adamw_step(device.ctx, param, {}, grad, m, v, scalars, {});
  device.ctx.arena.end_step();
  EXPECT_EQ(emulator::counters().synchronized(), before);
  EXPECT_NE(device.read<float>(param), 1.0f);
  EXPECT_EQ(device.read<StepState>(state).grad_norm, std::sqrt(300.0));
}

// The thread uses device 1 when device 0's memory is freed, while work is still queued there.
TEST(DeviceMemory, IsGivenBackOnItsOwnDevice) {
  emulator::set_devices(2);
  {
    std::unique_ptr<cuda::Context> first = cuda::open(0);
    const auto current = [] {
      int device = -1;
      cudaGetDevice(&device);
      return device;
    };
    std::vector<Buffer> buffers;
    buffers.emplace_back("device", 256, Memory::kDevice);
    buffers.emplace_back("pinned", 256, Memory::kPinned);
    const auto queue = [&](const Buffer& to) {
      cuda::fill_bytes(*first, first->main, to.data(), 1, to.bytes());
    };
    queue(buffers[0]);
    cuda::copy_async(*first, first->main, buffers[1].data(), buffers[0].data(), 256);
    const std::unique_ptr<cuda::Context> second = cuda::open(1);
    EXPECT_EQ(current(), 1);
    while (!buffers.empty()) buffers.pop_back();
    EXPECT_EQ(current(), 1);
    cuda::use_device(*first);
    const Buffer kept("kept", 256, Memory::kDevice);
    queue(kept);
    cuda::use_device(*second);
    first.reset();
    EXPECT_EQ(current(), 1);
    const emulator::ScopedDeviceAccess access;
    EXPECT_EQ(kept.data()[255], std::byte{1});  // the work was done before the stream was destroyed
  }
  emulator::set_devices(1);
}

}  // namespace
}  // namespace trireme::test
