#include "tests/cuda/device_ranks.h"

#include "parallel/comm/world.h"
#include "tests/emulator/emulator.h"

namespace trireme::test {

void run_device_ranks(int ranks, int gpus, DeviceBackend backend,
                      const std::function<void(DeviceRank&)>& rank, bool check_operations) {
  emulator::set_devices(gpus);
  CommOptions options;
  options.algorithm = CommAlgorithm::kRing;
  options.timeout_s = 120;
  options.check_operations = check_operations;
  run_threads(
      ranks,
      [&](Communicator& world) {
        const std::unique_ptr<cuda::Context> gpu = cuda::open(world.rank() % gpus);
        const DeviceAttachment attached = world.attach(*gpu, backend);
        DeviceRank here{world, *gpu};
        rank(here);
      },
      options);
}

DeviceTensor::DeviceTensor(cuda::Context& gpu, const Tensor& host)
    : gpu_(gpu),
      memory_("device tensor", std::max<int64_t>(host.bytes(), 1), Memory::kDevice),
      view_(memory_.data(), host.dtype(), host.shape(), DeviceType::kCuda) {
  cuda::upload(gpu, view_.raw(), host.raw(), host.bytes());
}

std::string DeviceTensor::bytes() const {
  std::string bytes(static_cast<size_t>(view_.bytes()), '\0');
  cuda::download(gpu_, bytes.data(), view_.raw(), view_.bytes());
  return bytes;
}

std::string bytes_of(const ConstTensor& host) {
  return {static_cast<const char*>(host.raw()), static_cast<size_t>(host.bytes())};
}

}  // namespace trireme::test
