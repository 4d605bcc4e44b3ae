// Ranks that are threads, each with an emulated GPU; and tensors in its memory.
#pragma once

#include <functional>

#include "engine/device/context.h"
#include "parallel/comm/communicator.h"
#include "tests/support/compare.h"

namespace trireme::test {

// The world of one rank and its GPU, attached.
struct DeviceRank {
  Communicator& world;
  cuda::Context& gpu;
};

// gpus: of the machine; rank r takes number r modulo it. Collectives on the host go around rings,
// and whoever waits for 20 seconds gives up.
void run_device_ranks(int ranks, int gpus, DeviceBackend backend,
                      const std::function<void(DeviceRank&)>& rank, bool check_operations = false);

class DeviceTensor {
 public:
  DeviceTensor(cuda::Context& gpu, const Tensor& host);  // a copy
  const Tensor& operator*() const { return view_; }
  std::string bytes() const;  // waits for the main stream

 private:
  cuda::Context& gpu_;
  Buffer memory_;
  Tensor view_;
};

std::string bytes_of(const ConstTensor& host);

}  // namespace trireme::test
