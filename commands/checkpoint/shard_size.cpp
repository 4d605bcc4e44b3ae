#include "commands/checkpoint/shard_size.h"

#include <map>

#include "engine/core/error.h"

namespace trireme {

int64_t size_of_text(const std::string& size) {
  size_t digits = 0;
  while (digits < size.size() && size[digits] >= '0' && size[digits] <= '9') ++digits;
  static const std::map<std::string, int64_t> kUnits = {
      {"", 1},          {"B", 1},         {"KB", 1000},          {"MB", 1'000'000},
      {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GB", 1'000'000'000}, {"GiB", 1 << 30}};
  const auto unit = kUnits.find(size.substr(digits));
  if (digits == 0 || digits > 9 || unit == kUnits.end())
    fail_input("--max-shard-size ", size, ": give a number and a unit, as 5GB or 512MiB");
  const int64_t bytes = std::stoll(size.substr(0, digits)) * unit->second;
  if (bytes < 1) fail_input("--max-shard-size ", size, ": expected at least 1 byte");
  return bytes;
}

}  // namespace trireme
