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

ShortText::ShortText(char c) : data_{c}, size_(1) {}

template <class I>
static unsigned char write_digits(char (&data)[23], I i) {
  return static_cast<unsigned char>(std::to_chars(data, data + sizeof data, i).ptr - data);
}

ShortText::ShortText(long long i) : size_(write_digits(data_, i)) {}

ShortText::ShortText(unsigned long long i) : size_(write_digits(data_, i)) {}

std::string join(Parts parts) {
  size_t size = 0;
  for (const std::string_view part : parts) size += part.size();
  std::string out;
  out.reserve(size);
  for (const std::string_view part : parts) out.append(part);
  return out;
}

void throw_input_error(Parts parts) { throw InputError(join(parts)); }

void throw_check_failed(const char* expression, std::source_location where, Parts parts) {
  const std::string message = join(parts);
  throw CheckFailed(concat(where.file_name(), ":", where.line(), ": check failed: ", expression,
                           message.empty() ? "" : ": ", message));
}

}  // namespace detail
}  // namespace trireme
