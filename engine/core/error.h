// Errors that carry values.
//
// TRIREME_CHECK(condition, parts...) throws CheckFailed if an internal contract is broken (a bug in
// the caller); fail_input(parts...) throws InputError if the user's input cannot be used (exit code
// 2). Parts are strings, characters, numbers, booleans or types with a text(const T&) overload;
// they are joined without separators. Libraries never print or exit.
#pragma once

#include <concepts>
#include <initializer_list>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

// Documented in docs/reference/exit-codes.md; main() maps an exception to one of these.
enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,       // a bug or an unexpected failure of the system
  kBadInput = 2,      // config, files, sizes, full disk: the message says what to change
  kStoppedSaved = 3,  // stopped by request after saving a checkpoint
  kDiverged = 4,      // too many non-finite steps in a row
  kLostRank = 5,      // a peer died or stopped responding
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ExitCode code = ExitCode::kFailure)
      : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Broken internal contract: the message is for the program's authors.
class CheckFailed : public Error {
 public:
  using Error::Error;
};

// Error in the user's input; the message names the value, the place and the way out.
class InputError : public Error {
 public:
  explicit InputError(const std::string& what) : Error(what, ExitCode::kBadInput) {}
};

// Text of one value, used to build messages without a formatting library in every header.
inline const std::string& text(const std::string& s) { return s; }
inline std::string text(std::string_view s) { return std::string(s); }
inline std::string text(const char* s) { return s; }
template <std::same_as<bool> B>
std::string text(B b) {
  return b ? "true" : "false";
}
template <std::integral I>
requires(!std::same_as<I, bool> && !std::same_as<I, char>) std::string text(I i) {
  return std::to_string(i);
}
std::string text(double value);  // shortest decimal that parses to the same value

namespace detail {

// Digits of an integer, or one character: a message part without an allocation.
class ShortText {
 public:
  explicit ShortText(char c);
  explicit ShortText(long long i);
  explicit ShortText(unsigned long long i);
  explicit operator std::string_view() const { return {data_, size_}; }

 private:
  char data_[23];
  unsigned char size_;
};

inline std::string_view part(const char* s) { return s; }
inline std::string_view part(const std::string& s) { return s; }
inline std::string_view part(std::string_view s) { return s; }
template <std::same_as<bool> B>
std::string_view part(B b) {
  return b ? "true" : "false";
}
template <std::integral I>
requires(!std::same_as<I, bool>) ShortText part(I i) {
  if constexpr (std::same_as<I, char>) return ShortText(i);
  if constexpr (std::signed_integral<I>) return ShortText(static_cast<long long>(i));
  return ShortText(static_cast<unsigned long long>(i));
}
template <class T>
requires(!std::integral<T> && !std::convertible_to<const T&, std::string_view>) std::string
    part(const T& value) {
  return text(value);
}

using Parts = std::initializer_list<std::string_view>;
std::string join(Parts parts);
[[noreturn]] void throw_input_error(Parts parts);
[[noreturn]] void throw_check_failed(const char* expression, std::source_location where,
                                     Parts parts);

}  // namespace detail

// Message functions are inlined to a list of string_views and one call: messages differ in their
// parts' types, and compiling a joining function for each combination took a tenth of the build
// time.
template <class... Parts>
[[gnu::always_inline]] inline std::string concat(const Parts&... parts) {
  return detail::join({std::string_view(detail::part(parts))...});
}

template <class... Parts>
[[noreturn, gnu::always_inline]] inline void fail_input(const Parts&... parts) {
  detail::throw_input_error({std::string_view(detail::part(parts))...});
}

namespace detail {
template <class... Parts>
[[noreturn, gnu::always_inline]] inline void fail_check(const char* expression,
                                                        std::source_location where,
                                                        const Parts&... parts) {
  throw_check_failed(expression, where, {std::string_view(part(parts))...});
}
}  // namespace detail

}  // namespace trireme

// The condition must be a bool: a string literal or a pointer does not compile.
#define TRIREME_CHECK(condition, ...)                                                            \
  do {                                                                                           \
    const std::same_as<bool> auto trireme_ok = (condition);                                      \
    if (!trireme_ok) [[unlikely]]                                                                \
      ::trireme::detail::fail_check(#condition,                                                  \
                                    std::source_location::current() __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

#define TRIREME_UNREACHABLE(...)               \
  ::trireme::detail::fail_check("unreachable", \
                                std::source_location::current() __VA_OPT__(, ) __VA_ARGS__)
