// Control groups of Linux (cgroups), versions 1 and 2, that limit this process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace trireme {

enum class ControlGroupVersion { kFirst, kSecond };

// Calls visit(folder, version) for the group that has the controller ("memory", "cpu") and each of
// its parents, whose limits hold too. In a container the path of /proc/self/cgroup may be the
// host's, where only the container's own group can be seen, at the root: it is visited as well, so
// folders need not exist. root: a folder with a proc and a sys in it; tests have their own.
void for_each_control_group(const std::string& root, const std::string& controller,
                            const std::function<void(const std::filesystem::path& folder,
                                                     ControlGroupVersion version)>& visit);

// The number that a file begins with; absent: it is not there, or that is no number ("max").
std::optional<int64_t> number_in(const std::filesystem::path& file);

}  // namespace trireme
