#include "commands/copy_status.h"

#include <algorithm>

#include "engine/observe/console.h"
#include "engine/observe/progress.h"

namespace trireme {

CopyStatus::~CopyStatus() { console_set_status(""); }

CopyProgress CopyStatus::progress() {
  return [this](int64_t done, int64_t total) { update(done, total); };
}

void CopyStatus::update(int64_t done, int64_t total) {
  if (!console_is_terminal() || done == 0 || Clock::now() - drawn_ < std::chrono::milliseconds(100))
    return;
  drawn_ = Clock::now();
  const double share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
  std::string line =
      concat(what_, " ", static_cast<int>(100 * share), "%  ", format_bytes(done), " of ",
             format_bytes(total), "  ETA ", format_duration(seconds() * (1 / share - 1)));
  line.resize(std::min(line.size(), static_cast<size_t>(console_width())));
  console_set_status(line);
}

}  // namespace trireme
