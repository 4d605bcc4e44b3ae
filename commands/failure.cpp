#include "commands/failure.h"

#include <atomic>

#include "engine/observe/log.h"

namespace trireme {
namespace {

std::atomic<bool> g_announced{false};

}  // namespace

int fail_command(const std::string& message, ExitCode code) {
  if (code != ExitCode::kLostRank || !g_announced.exchange(true)) report_failure(message);
  return static_cast<int>(code);
}

void announce_loss(const std::string& message) {
  if (!g_announced.exchange(true)) report_failure(message);
}

bool loss_announced() { return g_announced.load(); }

}  // namespace trireme
