// Log messages: to stderr and, once opened, to the run's train.log, there with a timestamp.
// Thread-safe.
//
// Only rank 0 writes "info" and "debug"; every rank writes warnings and errors, with the prefix
// "[rank N]" on ranks above 0. A progress bar is erased before a line and redrawn after it
// (console.h).
#pragma once

#include <string>

#include "engine/core/error.h"

namespace trireme {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel least);           // lowest level that is written; default: kInfo
void set_log_rank(int rank);                  // default: 0
void open_log_file(const std::string& path);  // appends; InputError if it cannot be opened
void close_log_file();
void log_message(LogLevel level, const std::string& message);
// Reports a failure that ends the program, on any rank: "trireme: error: message", to stderr and to
// train.log, with control characters escaped and after 16 KiB cut (printable() of utf8.h).
void report_failure(const std::string& message);
// Writes a line of console_line.h to stdout and to train.log unchanged: no timestamp is added. Rank
// 0 only, at any log level.
void log_line(const std::string& line);

template <class... Parts>
[[gnu::always_inline]] inline void log_debug(const Parts&... parts) {
  log_message(LogLevel::kDebug, concat(parts...));
}
template <class... Parts>
[[gnu::always_inline]] inline void log_info(const Parts&... parts) {
  log_message(LogLevel::kInfo, concat(parts...));
}
template <class... Parts>
[[gnu::always_inline]] inline void log_warning(const Parts&... parts) {
  log_message(LogLevel::kWarning, concat(parts...));
}
template <class... Parts>
[[gnu::always_inline]] inline void log_error(const Parts&... parts) {
  log_message(LogLevel::kError, concat(parts...));
}

}  // namespace trireme
