#include "commands/checkpoint/copy_status.h"

#include <algorithm>
#include <cstdio>

#include "engine/observe/console.h"
#include "engine/observe/log.h"
#include "engine/observe/progress.h"

namespace trireme {

CopyStatus::~CopyStatus() { console_set_status(""); }

CopyProgress CopyStatus::progress() {
  return [this](int64_t done, int64_t total) { update(done, total); };
}

void CopyStatus::update(int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  if (first_ < 0) {
    first_ = done;
    began_ = now;
  }
  const bool terminal = console_is_terminal();
  Clock::time_point& reported = terminal ? drawn_ : logged_;
  if (now - reported < (terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(30)))
    return;
  reported = now;
  std::string line = concat(what_, " ", 100 * done / std::max<int64_t>(1, total), "%  ",
                            format_bytes(done), " of ", format_bytes(total));
  if (done > first_) {
    const double speed =
        static_cast<double>(done - first_) / std::chrono::duration<double>(now - began_).count();
    line += concat("  ", speed_text(speed), "  ETA ",
                   format_duration(static_cast<double>(total - done) / speed));
  }
  if (!terminal) return log_info(line);
  line.resize(std::min(line.size(), static_cast<size_t>(console_width())));
  console_set_status(line);
}

std::string speed_text(double bytes_per_second) {
  char out[32];
  std::snprintf(out, sizeof(out), "%.2f GB/s", bytes_per_second * 1e-9);
  return out;
}

}  // namespace trireme
