// Linux control groups (cgroups), versions 1 and 2, that limit this process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

enum class ControlGroupVersion { kFirst, kSecond };

// Calls visit(folder, version) for this process's group and for each of its parents, whose limits
// also apply. With version 1 that is the group that has `controller` ("memory", "cpu"); with
// version 2 a process has one group for all controllers. A folder need not exist: in a container,
// /proc/self/cgroup may contain the path on the host while only the container's own group is
// visible, at the root of the mount, which is visited too. No call if /proc/self/cgroup cannot be
// read. root: a folder that contains proc and sys; tests pass their own.
void for_each_control_group(const std::string& root, const std::string& controller,
                            const std::function<void(const std::filesystem::path& folder,
                                                     ControlGroupVersion version)>& visit);

// Number at the start of a file; nullopt if the file is missing or starts otherwise ("max").
std::optional<int64_t> number_in(const std::filesystem::path& file);

}  // namespace trireme
