#include "serving/model/gpu_memory.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {
namespace {

constexpr int64_t kRecordBytes = int64_t{512} << 20;  // per rank: recorded steps, library plans

}  // namespace

int64_t step_bytes_on_gpu(std::span<const RankStep> steps, size_t self, int sharing) {
  const RankStep& own = steps[self];
  int64_t sum = 0, largest = 0, others = sharing;
  for (const RankStep& step : steps) {
    largest = std::max(largest, step.bytes);
    if (step.host != own.host || step.device != own.device) continue;
    sum += step.bytes;
    --others;
  }
  return sum + checked_mul(std::max<int64_t>(others, 0), largest);
}

int64_t cache_bytes_on_gpu(const GpuMemory& gpu) {
  const auto all = static_cast<int64_t>(gpu.share * static_cast<double>(gpu.total));
  const int64_t beside = gpu.step_bytes + checked_mul(gpu.sharing, kRecordBytes);
  return std::max<int64_t>(std::min(all, gpu.total - beside) - gpu.used, 0) / gpu.sharing;
}

}  // namespace trireme
