// Errors that carry values.
//
// TRIREME_CHECK(condition, parts...) throws CheckFailed when an internal contract is broken
// (a bug in the caller); fail_input(parts...) throws InputError when what the user gave cannot be
// used (exit code 2). Parts are strings, numbers, booleans or types with a text(const T&) overload;
// they are joined into one line. Libraries never print or exit.
#pragma once

#include <concepts>
#include <cstdint>
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
  kLostRank = 5,      // a peer died or stopped answering
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, ExitCode code = ExitCode::kFailure)
      : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// An internal contract is broken: the message is for the program's authors.
class CheckFailed : public Error {
 public:
  using Error::Error;
};

// The user's input is at fault; the message names the value, the place and the way out.
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
template <std::same_as<char> C>
std::string text(C c) {
  return std::string(1, c);
}
std::string text(double value);  // shortest form that reads back equal

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (out.append(text(parts)), ...);
  return out;
}

namespace detail {
[[noreturn]] void throw_check_failed(const char* expression, std::source_location where,
                                     const std::string& message);
}

template <class... Parts>
[[noreturn]] void fail_input(const Parts&... parts) {
  throw InputError(concat(parts...));
}

}  // namespace trireme

// The condition must be a bool: a string literal or a pointer there does not compile.
#define TRIREME_CHECK(condition, ...)                                                    \
  do {                                                                                   \
    const std::same_as<bool> auto trireme_ok = (condition);                              \
    if (!trireme_ok) [[unlikely]]                                                        \
      ::trireme::detail::throw_check_failed(#condition, std::source_location::current(), \
                                            ::trireme::concat(__VA_ARGS__));             \
  } while (false)

#define TRIREME_UNREACHABLE(...)                                                        \
  ::trireme::detail::throw_check_failed("unreachable", std::source_location::current(), \
                                        ::trireme::concat(__VA_ARGS__))
