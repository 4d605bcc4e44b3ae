#include "engine/core/control_group.h"

#include <fstream>

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Visit = std::function<void(const fs::path&, ControlGroupVersion)>;

void visit_with_parents(const fs::path& all, const std::string& path, ControlGroupVersion version,
                        const Visit& visit) {
  visit(all, version);
  for (fs::path group = fs::path(path).lexically_normal(); group.has_relative_path();
       group = group.parent_path())
    visit(all / group.relative_path(), version);
}

}  // namespace

void for_each_control_group(const std::string& root, const std::string& controller,
                            const Visit& visit) {
  const fs::path here(root), groups = here / "sys/fs/cgroup";
  std::ifstream lines(here / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      visit_with_parents(groups, path, ControlGroupVersion::kSecond, visit);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      // "cpu,cpuacct" is mounted under its whole name, and usually also under each part of it.
      visit_with_parents(groups / controllers, path, ControlGroupVersion::kFirst, visit);
      if (controllers != controller)
        visit_with_parents(groups / controller, path, ControlGroupVersion::kFirst, visit);
    }
  }
}

std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (in >> number) return number;
  return {};
}

}  // namespace trireme
