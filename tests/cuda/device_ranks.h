// Ranks as threads, each with an emulated GPU, and tensors in its memory.
#pragma once

#include <functional>

#include "engine/device/context.h"
#include "parallel/comm/communicator.h"
#include "tests/support/compare.h"

namespace trireme::test {

// World communicator of one rank, and its attached GPU.
struct DeviceRank {
  Communicator& world;
  cuda::Context& gpu;
};

// gpus: number of GPUs; rank r uses GPU r modulo it. Host collectives use rings and time out after
// 20 seconds.
void run_device_ranks(int ranks, int gpus, DeviceBackend backend,
                      const std::function<void(DeviceRank&)>& rank, bool check_operations = false);

class DeviceTensor {
 public:
  DeviceTensor(cuda::Context& gpu, const Tensor& host);  // copies `host`
  const Tensor& operator*() const { return view_; }
  std::string bytes() const;  // synchronizes with the main stream

 private:
  cuda::Context& gpu_;
  Buffer memory_;
  Tensor view_;
};

std::string bytes_of(const ConstTensor& host);

}  // namespace trireme::test
