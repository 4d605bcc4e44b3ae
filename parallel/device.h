// Compute device of a rank, chosen by the configuration: "auto", "cpu", "cuda".
#pragma once

#include "engine/device/context.h"
#include "parallel/comm/world.h"

namespace trireme {

struct RankDevice {
  std::unique_ptr<cuda::Context> gpu;  // null: CPU
  DeviceAttachment attachment;         // of the GPU to the communicators
  std::string reason;                  // why "auto" chose the CPU; else empty
  cuda::Context* get() const { return gpu.get(); }
};

// Collective; call before any groups are split from the world. Assigns the GPUs of a host to its
// ranks round-robin. device "auto": "cuda" if every rank sees a GPU, else "cpu". `backend`: "auto",
// "nccl" or "staged" (DeviceBackend); not used on the CPU. InputError on every rank, with the
// reason, if a rank cannot open its GPU or `backend` cannot be used.
RankDevice open_rank_device(World& world, const std::string& device,
                            const std::string& backend = "auto");

// "cuda:0, NVIDIA H200 (sm_90, 132 multiprocessors, 139.8 GiB)", plus the reason if attention does
// not use cuDNN. CPU: instruction set of the kernels, threads of a rank, RankDevice::reason, and a
// note if this build has no kernels for a better instruction set that the processor has.
std::string describe_device(const RankDevice& device, int threads);

// Logs and clears Context::notes: a warning for each call that a GPU library refused.
void log_notes(cuda::Context& gpu);

}  // namespace trireme
