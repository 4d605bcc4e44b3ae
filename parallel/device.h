// The device a rank computes on, chosen by the words of the configuration: "auto", "cpu", "cuda".
#pragma once

#include "engine/device/context.h"
#include "parallel/comm/world.h"

namespace trireme {

struct RankDevice {
  std::unique_ptr<cuda::Context> gpu;  // null: the CPU
  DeviceAttachment attachment;         // of the communicators to it
  std::string reason;                  // why the CPU was chosen for "auto"; else empty
  cuda::Context* get() const { return gpu.get(); }
};

// Collective, before groups are made of the world. The ranks of a host take its GPUs in turn;
// backend says how their tensors travel. "auto" is cuda where every rank sees one, else the CPU.
// InputError on every rank where "cuda" cannot be had on one, naming the reason.
RankDevice open_rank_device(World& world, const std::string& device,
                            const std::string& backend = "auto");

// "cuda:0, NVIDIA H200 (sm_90, 132 multiprocessors, 139.8 GiB)", and why where attention is not
// cuDNN's; of the CPU the kernels and threads.
std::string describe_device(const RankDevice& device, int threads);

// Warns of what its libraries have refused since the last call, once each.
void log_notes(cuda::Context& gpu);

}  // namespace trireme
