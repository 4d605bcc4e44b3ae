#include "engine/core/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "engine/core/control_group.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int kNoQuota = 1 << 20;

struct Quota {
  std::optional<int64_t> time, period;  // microseconds
};

Quota quota_of(const fs::path& group, ControlGroupVersion version) {
  if (version == ControlGroupVersion::kFirst)  // -1: none
    return {number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us")};
  std::ifstream in(group / "cpu.max");  // "QUOTA PERIOD", "max PERIOD"
  int64_t time = 0, period = 0;
  if (in >> time >> period) return {time, period};
  return {};
}

}  // namespace

int quota_cores(const std::string& root) {
  int64_t least = kNoQuota;
  for_each_control_group(root, "cpu", [&](const fs::path& group, ControlGroupVersion version) {
    const Quota quota = quota_of(group, version);
    const int64_t time = quota.time.value_or(0), period = quota.period.value_or(0);
    if (time > 0 && period > 0) least = std::min(least, (time - 1) / period + 1);
  });
  return static_cast<int>(least);
}

}  // namespace trireme
