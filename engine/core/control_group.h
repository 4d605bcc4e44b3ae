// Linux control groups (cgroups), versions 1 and 2, that limit this process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

enum class ControlGroupVersion { kFirst, kSecond };

// Calls visit(folder, version) for the group that has the controller ("memory", "cpu") and for each
// of its parents, whose limits also apply. In a container the path in /proc/self/cgroup may be the
// host's while only the container's own group is visible, at the root of the mount: that folder is
// visited as well, so a visited folder need not exist. root: a folder that contains proc and sys;
// tests pass their own.
void for_each_control_group(const std::string& root, const std::string& controller,
                            const std::function<void(const std::filesystem::path& folder,
                                                     ControlGroupVersion version)>& visit);

// Number at the start of a file; absent: no such file, or no number there ("max").
std::optional<int64_t> number_in(const std::filesystem::path& file);

}  // namespace trireme
