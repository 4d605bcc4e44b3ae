#include "engine/device/context.h"

namespace trireme::cuda {

Context::~Context() = default;

Event::~Event() {
  if (raw_ != nullptr) destroy_event(raw_);
}

DeviceStatus device_status() {
  if (&probe_devices == nullptr) return {.reason = "built without CUDA"};
  return probe_devices();
}

std::unique_ptr<Context> open(int device) {
  const DeviceStatus status = device_status();
  if (status.devices == 0)
    fail_input("device cuda cannot be used: ", status.reason,
               "; set \"device\": \"cpu\", or run where a GPU and its driver are");
  if (device < 0 || device >= status.devices)
    fail_input("device cuda:", device, " does not exist: this process sees ", status.devices,
               " (CUDA_VISIBLE_DEVICES limits them)");
  return open_device(device);
}

}  // namespace trireme::cuda
