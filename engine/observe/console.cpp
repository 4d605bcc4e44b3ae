#include "engine/observe/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

namespace trireme {
namespace {

struct Console {
  std::mutex mutex;
  std::string status;
};
Console& console() {
  static Console instance;
  return instance;
}

// Set once, before several threads print.
std::atomic<bool> g_behind_launcher{false};
bool behind_launcher() { return g_behind_launcher; }
ConsoleTarget& launcher_target() {
  static ConsoleTarget target;
  return target;
}

// A launcher that is ending its ranks no longer reads from them: a line is then not worth waiting
// for.
std::atomic<bool> g_drop_unread{false};

bool wait_for_room(std::FILE* file) {
  for (;;) {
    pollfd room{::fileno(file), POLLOUT, 0};
    const int ready = ::poll(&room, 1, 50);
    if (ready > 0) return true;  // or an error, which the write reports
    if (g_drop_unread) return false;
  }
}

void erase_status() { std::fputs("\r\033[K", stdout); }

}  // namespace

void console_print(Stream stream, const std::string& line) {
  Console& c = console();
  const std::lock_guard lock(c.mutex);
  const bool one_stream = behind_launcher() && launcher_target().shared;
  std::FILE* file = stream == Stream::kOut || one_stream ? stdout : stderr;
  if (behind_launcher() && !wait_for_room(file)) return;
  if (!c.status.empty()) {
    erase_status();
    std::fflush(stdout);  // before the line: stderr may be the same terminal
  }
  std::fputs((line + "\n").c_str(), file);
  std::fflush(file);
  if (!c.status.empty()) {
    std::fputs(c.status.c_str(), stdout);
    std::fflush(stdout);
  }
}

void console_set_status(const std::string& status) {
  if (!console_is_terminal()) return;
  Console& c = console();
  const std::lock_guard lock(c.mutex);
  if (c.status.empty() && status.empty()) return;
  erase_status();
  std::fputs(status.c_str(), stdout);
  std::fflush(stdout);
  c.status = status;
}

void console_drop_unread() { g_drop_unread = true; }

void console_use_launcher_terminal(const ConsoleTarget& target) {
  launcher_target() = target;
  g_behind_launcher = true;
}

bool console_is_terminal() {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  return behind_launcher() ? launcher_target().columns > 0 : terminal;
}

int console_width() {
  if (behind_launcher()) return std::max(1, launcher_target().columns);
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

ConsoleTarget console_target() {
  if (!console_is_terminal()) return {};
  struct stat out {
  }, err{};
  const bool shared = ::isatty(STDERR_FILENO) == 1 && ::fstat(STDOUT_FILENO, &out) == 0 &&
                      ::fstat(STDERR_FILENO, &err) == 0 && out.st_rdev == err.st_rdev;
  return {console_width(), shared};
}

}  // namespace trireme
