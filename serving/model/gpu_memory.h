// Division of a GPU's memory among the ranks that share it.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// Memory that the largest step of a rank needs on its GPU.
struct RankStep {
  int host = 0, device = 0;  // of the GPU
  int64_t bytes = 0;
};

// Bytes that the largest steps of all `sharing` ranks on the GPU of rank `self` need. steps: by
// world rank. Ranks of other groups on that GPU are not among them: each counts as the rank that
// needs most, since all groups have the same layout.
int64_t step_bytes_on_gpu(std::span<const RankStep> steps, size_t self, int sharing);

struct GpuMemory {
  int64_t total = 0;       // bytes, as all below
  int64_t used = 0;        // without KV caches and steps
  double share = 1;        // fraction of `total` in use once the KV caches are allocated
  int sharing = 1;         // ranks on the GPU
  int64_t step_bytes = 0;  // step_bytes_on_gpu()
};

// Bytes of the KV cache of each rank on a GPU. The cache is smaller where the memory outside
// `share` is too little for the steps, as on a small GPU. 0: there is no room.
int64_t cache_bytes_on_gpu(const GpuMemory& gpu);

}  // namespace trireme
