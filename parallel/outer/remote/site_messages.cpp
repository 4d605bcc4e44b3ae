#include "parallel/outer/remote/site_messages.h"

#include <algorithm>
#include <cmath>

namespace trireme {

void prepare_site_channel(ControlChannel& channel, double timeout_s, int64_t max_payload) {
  // A site that pauses for longer than a short timeout_s is late, and not lost: with unread data it
  // would count as unreachable. The system's limits of keep-alive are not far above kMax.
  constexpr double kMin = 30, kMax = 24 * 3600;
  const std::chrono::seconds limit(std::llround(std::clamp(timeout_s, kMin, kMax)));
  channel.accept_payloads(max_payload);
  channel.stall_after(limit);
  channel.keep_alive(limit);
}

}  // namespace trireme
