// Linux control groups (cgroups), versions 1 and 2, that limit this process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

enum class ControlGroupVersion { kFirst, kSecond };

// Calls visit(folder, version) for this process's group with the controller ("memory", "cpu") and
// for each of its parents, whose limits also apply; of version 2, for the one group. A folder need
// not exist: in a container, /proc/self/cgroup may contain the path on the host while only the
// container's own group is visible, at the root of the mount, which is visited too. root: a folder
// that contains proc and sys; tests pass their own.
void for_each_control_group(const std::string& root, const std::string& controller,
                            const std::function<void(const std::filesystem::path& folder,
                                                     ControlGroupVersion version)>& visit);

// Number at the start of a file; nullopt if the file is missing or starts otherwise ("max").
std::optional<int64_t> number_in(const std::filesystem::path& file);

}  // namespace trireme
