#include "engine/core/error.h"

#include <array>
#include <charconv>

namespace trireme {

std::string text(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return std::string(buffer.data(), end);
}

namespace detail {

void throw_check_failed(const char* expression, std::source_location where,
                        const std::string& message) {
  std::string line = concat(where.file_name(), ":", where.line(), ": check failed: ", expression);
  if (!message.empty()) line += concat(": ", message);
  throw CheckFailed(line);
}

}  // namespace detail
}  // namespace trireme
