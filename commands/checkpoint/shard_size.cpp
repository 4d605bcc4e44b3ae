#include "commands/checkpoint/shard_size.h"

#include <charconv>
#include <map>

#include "engine/core/error.h"

namespace trireme {

int64_t parse_shard_size(const std::string& size) {
  size_t digits = 0;
  while (digits < size.size() && size[digits] >= '0' && size[digits] <= '9') ++digits;
  static const std::map<std::string, int64_t> kUnits = {
      {"", 1},          {"B", 1},         {"KB", 1000},          {"MB", 1'000'000},
      {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GB", 1'000'000'000}, {"GiB", 1 << 30}};
  const auto unit = kUnits.find(size.substr(digits));
  if (digits == 0 || unit == kUnits.end())
    fail_input("--max-shard-size ", size, ": give a number and a unit, as 5GB or 512MiB");
  int64_t count = 0, bytes = 0;
  const auto read = std::from_chars(size.data(), size.data() + digits, count);
  if (read.ec != std::errc() || __builtin_mul_overflow(count, unit->second, &bytes))
    fail_input("--max-shard-size ", size, ": expected less than 2^63 bytes");
  if (bytes < 1) fail_input("--max-shard-size ", size, ": expected at least 1 byte");
  return bytes;
}

}  // namespace trireme
