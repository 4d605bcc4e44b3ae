#include "engine/core/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "engine/core/control_group.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Memory files of the two control-group versions.
struct GroupFiles {
  const char *limit, *used;
  const char *idle_pages,
      *busy_pages;  // page cache, child groups included: lines of memory.stat
};
constexpr GroupFiles kFirst{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                            "total_active_file"};
constexpr GroupFiles kSecond{"memory.max", "memory.current", "inactive_file", "active_file"};

// Number after a word at the start of a line; absent: no such line.
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

}  // namespace

int64_t free_host_memory(const std::string& root) {
  const fs::path here(root);
  int64_t least = INT64_MAX;
  if (const auto kilobytes = number_behind(here / "proc/meminfo", "MemAvailable:"))
    least = *kilobytes * 1024;
  for_each_control_group(root, "memory", [&](const fs::path& group, ControlGroupVersion version) {
    least =
        std::min(least, left_in(group, version == ControlGroupVersion::kFirst ? kFirst : kSecond));
  });
  return std::max<int64_t>(0, least);
}

}  // namespace trireme
