// Compute device of a rank, chosen by the configuration: "auto", "cpu", "cuda".
#pragma once

#include "engine/device/context.h"
#include "parallel/comm/world.h"

namespace trireme {

struct RankDevice {
  std::unique_ptr<cuda::Context> gpu;  // null: CPU
  DeviceAttachment attachment;         // attaches the communicators to the GPU
  std::string reason;                  // why "auto" chose the CPU; else empty
  cuda::Context* get() const { return gpu.get(); }
};

// Collective; call before any groups are split from the world. Assigns the GPUs of a host to its
// ranks round-robin. `backend` selects how GPU tensors are sent. "auto": cuda if every rank sees a
// GPU, else the CPU. InputError on every rank, with the reason, if "cuda" is not available on one.
RankDevice open_rank_device(World& world, const std::string& device,
                            const std::string& backend = "auto");

// "cuda:0, NVIDIA H200 (sm_90, 132 multiprocessors, 139.8 GiB)", plus the reason if attention is
// not cuDNN's. CPU: kernels and threads.
std::string describe_device(const RankDevice& device, int threads);

// Logs a warning for each note since the last call: what the GPU's libraries refused, once each.
void log_notes(cuda::Context& gpu);

}  // namespace trireme
