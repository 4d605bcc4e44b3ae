#include "serving/http/server/refusal_log.h"

#include <utility>

#include "engine/observe/log.h"

namespace trireme {

void RefusalLog::note(const std::string& peer, const std::string& route, const ApiError& error,
                      Clock::time_point now) {
  int64_t unwritten = 0;
  {
    const std::lock_guard lock(mutex_);
    if (now - begun_ >= kPeriod) {
      begun_ = now;
      lines_ = 0;
    }
    if (lines_ == kLines) {
      ++unwritten_;
      return;
    }
    ++lines_;
    unwritten = std::exchange(unwritten_, 0);
  }
  log_warning("refused a request from ", peer, " to ", route.empty() ? "no route" : route, " with ",
              error.status(), " ", error.error_code(),
              unwritten > 0 ? concat("; ", unwritten, " more since the last line") : "");
}

}  // namespace trireme
