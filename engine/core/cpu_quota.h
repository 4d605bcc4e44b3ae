// Processors that the control groups of this process allow.
#pragma once

#include <string>

namespace trireme {

// Cores that the quotas (cpu.max, cpu.cfs_quota_us) of the process's control group and its parents
// allow together, rounded up: the smallest; at least 1, and 2^20 without a quota. Files that hold
// something else are no quota. root: as of for_each_control_group().
int quota_cores(const std::string& root = "/");

}  // namespace trireme
