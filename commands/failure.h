// Failure report and exit code of a failed command.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace trireme {

// Reports the failure (report_failure() in engine/observe/log.h) and returns the exit code. A lost
// rank (ExitCode::kLostRank) is reported only once, by the first thread that calls this or
// announce_loss().
int fail_command(const std::string& message, ExitCode code);
// Reports a lost rank, unless that was done already. The watchdog calls it in its own thread
// (WorldOptions::announce_loss).
void announce_loss(const std::string& message);
// True once either function has reported a lost rank.
bool loss_announced();

}  // namespace trireme
