#include "parallel/device.h"

#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/comm/device/device_environment.h"

namespace trireme {

RankDevice open_rank_device(World& world, const std::string& device, const std::string& backend) {
  RankDevice out;
  if (device == "cpu") return out;
  TRIREME_CHECK(device == "cuda" || device == "auto", "device ", device);
  set_device_environment(world.size());
  const cuda::DeviceStatus status = cuda::device_status();
  if (device == "auto") {
    int64_t all_see_one = status.devices > 0 ? 1 : 0;
    if (world.size() > 1)
      all_see_one = world.world().all_reduce_scalar(all_see_one, ReduceOp::kMin);
    if (all_see_one == 0) {
      out.reason = status.devices > 0 ? "another rank sees no GPU" : status.reason;
      return out;
    }
  }
  agreed(world.world(), [&] {
    const int number = status.devices > 0 ? world.local_rank() % status.devices : 0;
    out.gpu = cuda::open(number);
  });
  out.attachment = world.world().attach(*out.gpu, parse_device_backend(backend));
  if (!world.device_note().empty() && world.rank() == 0)
    log_warning("GPU tensors are sent through host memory, which is slow: ", world.device_note());
  return out;
}

void log_notes(cuda::Context& gpu) {
  for (const std::string& note : std::exchange(gpu.notes, {})) log_warning(note);
}

std::string describe_device(const RankDevice& device, int threads) {
  if (device.gpu == nullptr)
    return concat("cpu (", isa_name(active_isa()), " kernels, ", threads,
                  threads == 1 ? " thread" : " threads", " a rank",
                  device.reason.empty() ? "" : concat("; no GPU: ", device.reason),
                  missing_isa_note().empty() ? "" : concat("; ", missing_isa_note()), ")");
  const cuda::DeviceInfo& info = device.gpu->info;
  const int64_t tenths = info.memory_bytes * 10 / (int64_t{1} << 30);
  return concat("cuda:", device.gpu->device, ", ", info.name, " (sm_", info.compute_major,
                info.compute_minor, ", ", info.multiprocessors, " multiprocessors, ", tenths / 10,
                ".", tenths % 10, " GiB)",
                device.gpu->attention != nullptr
                    ? ""
                    : concat(", attention by own kernels: ", device.gpu->no_attention));
}

}  // namespace trireme
