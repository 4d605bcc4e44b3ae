// CPU quota of the control groups of this process.
#pragma once

#include <string>

namespace trireme {

// Cores that the quotas (cpu.max, cpu.cfs_quota_us) of the process's control group and of its
// parents allow: the smallest of them, rounded up, at least 1; 2^20 without a quota. A file with
// other content counts as no quota. root: as in for_each_control_group().
int quota_cores(const std::string& root = "/");

}  // namespace trireme
