#include "parallel/outer/remote/site_messages.h"

#include <algorithm>
#include <cmath>

namespace trireme {

void prepare_site_channel(ControlChannel& channel, double timeout_s, int64_t max_payload) {
  constexpr double kMin = 2, kMax = 24 * 3600;  // the system's limits of keep-alive are not far
  const std::chrono::seconds limit(std::llround(std::clamp(timeout_s, kMin, kMax)));
  channel.accept_payloads(max_payload);
  channel.stall_after(limit);
  channel.keep_alive(limit);
}

}  // namespace trireme
