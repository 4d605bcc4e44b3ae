#include "engine/device/context.h"

#include <algorithm>

namespace trireme::cuda {

Context::~Context() = default;

Event::~Event() {
  if (raw_ != nullptr) destroy_event(raw_);
}

std::string attention_paths(const Context& gpu) {
  constexpr std::array<const char*, kAttentionPaths> kNames = {"cudnn", "tensor cores", "plain",
                                                               "paged tensor cores", "paged plain"};
  std::string out;
  for (size_t i = 0; i < kAttentionPaths; ++i)
    if (gpu.attention_calls[i] > 0)
      out += concat(out.empty() ? "" : ", ", kNames[i], " ", gpu.attention_calls[i]);
  return out.empty() ? "none" : out;
}

std::string gemm_choice(const Context& gpu) { return gpu.autotune ? "timed" : "heuristic"; }

DeviceStatus device_status() {
  if (&probe_devices == nullptr) return {.reason = "built without CUDA"};
  return probe_devices();
}

double nominal_tflops(const DeviceInfo& info, DType operands) {
  // Operations per multiprocessor and clock: 2 for each fused multiply-add, dense. mhz: the clock
  // of the vendor's nominal figures for the device; devices may boost above it for a while.
  struct Rate {
    int sm;
    double half, single, full, mhz;
  };
  constexpr Rate kRates[] = {{80, 2048, 128, 64, 1410},   {86, 512, 256, 4, 1740},
                             {89, 512, 256, 4, 2520},     {90, 4096, 256, 128, 1830},
                             {100, 8192, 256, 128, 1850}, {103, 8192, 256, 4, 1850},
                             {120, 512, 256, 4, 2410}};
  const int sm = 10 * info.compute_major + info.compute_minor;
  for (const Rate& rate : kRates) {
    if (rate.sm != sm) continue;
    const double each = operands == DType::kF64   ? rate.full
                        : operands == DType::kF32 ? rate.single
                                                  : rate.half;
    const double mhz = std::min(rate.mhz, static_cast<double>(info.clock_khz) / 1e3);
    return each * info.multiprocessors * mhz / 1e6;
  }
  return 0;
}

std::unique_ptr<Context> open(int device) {
  const DeviceStatus status = device_status();
  if (status.devices == 0)
    fail_input(
        "device cuda cannot be used: ", status.reason,
        "; set \"device\": \"cpu\" (--device cpu), or run on a machine with a GPU and its driver");
  if (device < 0 || device >= status.devices)
    fail_input("device cuda:", device, " does not exist: this process sees ", status.devices,
               " (CUDA_VISIBLE_DEVICES limits them)");
  return open_device(device);
}

}  // namespace trireme::cuda
