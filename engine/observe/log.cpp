#include "engine/observe/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>

#include "engine/core/utf8.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/console.h"
#include "engine/observe/console_line.h"

namespace trireme {
namespace {

struct LogState {
  std::atomic<LogLevel> least{LogLevel::kInfo};
  std::atomic<int> rank{0};
  std::mutex mutex;  // guards file
  std::shared_ptr<spdlog::logger> file;
};
LogState& state() {
  static LogState instance;
  return instance;
}

spdlog::level::level_enum file_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  TRIREME_UNREACHABLE("log level ", static_cast<int>(level));
}

std::shared_ptr<spdlog::logger> current_file() {
  const std::lock_guard lock(state().mutex);
  return state().file;
}

std::string prefix(LogLevel level, int rank) {
  std::string who = rank == 0 ? "" : concat("[rank ", rank, "] ");
  if (level == LogLevel::kWarning) return who + "warning: ";
  if (level == LogLevel::kError) return who + "error: ";
  return who;
}

}  // namespace

void set_log_level(LogLevel least) { state().least = least; }

void set_log_rank(int rank) { state().rank = rank; }

void open_log_file(const std::string& path) {
  std::shared_ptr<spdlog::logger> file;
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
    file = std::make_shared<spdlog::logger>("train.log", std::move(sink));
  } catch (const spdlog::spdlog_ex&) {
    fail_file("open log file", path, errno != 0 ? errno : EIO);
  }
  file->set_pattern("%v");
  file->set_level(spdlog::level::trace);
  file->flush_on(spdlog::level::trace);  // a killed run's last lines are the most important
  const std::lock_guard lock(state().mutex);
  state().file = std::move(file);
}

void close_log_file() {
  const std::lock_guard lock(state().mutex);
  state().file.reset();
}

void log_message(LogLevel level, const std::string& message) {
  const int rank = state().rank;
  if (level < state().least || (rank != 0 && level < LogLevel::kWarning)) return;
  const std::string line = prefix(level, rank) + message;
  console_print(Stream::kErr, line);
  if (const auto file = current_file()) {
    file->log(file_level(level), "[{}] {}", local_time_text(), line);
  }
}

void report_failure(const std::string& message) {
  // A message may quote a hostile file.
  const std::string line = "trireme: error: " + printable(message);
  std::fflush(stdout);
  console_print(Stream::kErr, line);
  if (const auto file = current_file()) {
    file->error("[{}] {}", local_time_text(), line);
  }
}

void log_line(const std::string& line) {
  if (state().rank != 0) return;
  console_print(Stream::kOut, line);
  if (const auto file = current_file()) {
    file->info("{}", line);
  }
}

}  // namespace trireme
