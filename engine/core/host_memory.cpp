#include "engine/core/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Where the two versions of control groups keep what they know of memory.
struct GroupFiles {
  const char *folder, *limit, *used;
  const char *idle_pages,
      *busy_pages;  // of files, the groups inside included: lines of memory.stat
};
constexpr GroupFiles kFirst{"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                            "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
constexpr GroupFiles kSecond{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                             "active_file"};

// What the file begins with; absent: it is not there, or that is no number ("max").
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (in >> number) return number;
  return {};
}

// The number behind a word at the beginning of a line; absent: there is none.
std::optional<int64_t> number_behind(const fs::path& file, const std::string& word) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return {};
}

int64_t left_in(const fs::path& group, const GroupFiles& files) {
  const std::optional<int64_t> limit = number_in(group / files.limit);
  const std::optional<int64_t> used = number_in(group / files.used);
  if (!limit || !used) return INT64_MAX;
  const fs::path stat = group / "memory.stat";
  const int64_t pages = number_behind(stat, files.idle_pages).value_or(0) +
                        number_behind(stat, files.busy_pages).value_or(0);
  return *limit - std::max<int64_t>(0, *used - pages);
}

// Smallest limit of the group and its parents. In a container the path may be the host's, where
// only the container's own group is visible, at the root.
int64_t left_in_all(const fs::path& root, const std::string& path, const GroupFiles& files) {
  const fs::path all = root / files.folder;
  int64_t least = left_in(all, files);
  for (fs::path group = fs::path(path).lexically_normal(); group.has_relative_path();
       group = group.parent_path())
    least = std::min(least, left_in(all / group.relative_path(), files));
  return least;
}

}  // namespace

int64_t free_host_memory(const std::string& root) {
  const fs::path here(root);
  int64_t least = INT64_MAX;
  if (const auto kilobytes = number_behind(here / "proc/meminfo", "MemAvailable:"))
    least = *kilobytes * 1024;
  std::ifstream groups(here / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,")
      least = std::min(least, left_in_all(here, path, kSecond));
    else if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, left_in_all(here, path, kFirst));
  }
  return std::max<int64_t>(0, least);
}

}  // namespace trireme
