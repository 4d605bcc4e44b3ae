#include "engine/observe/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

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

void erase_status() { std::fputs("\r\033[K", stdout); }

}  // namespace

void console_print(Stream stream, const std::string& line) {
  Console& c = console();
  const std::lock_guard lock(c.mutex);
  std::FILE* file = stream == Stream::kOut ? stdout : stderr;
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

namespace {

std::atomic<bool> g_behind_launcher{false};

}  // namespace

void console_behind_launcher() { g_behind_launcher = true; }

bool console_is_terminal() {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  return terminal && !g_behind_launcher;
}

int console_width() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace trireme
