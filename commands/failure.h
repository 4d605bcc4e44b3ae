// What a failing command prints, once, and what it returns.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace trireme {

// Reports the failure (report_failure) and returns the code's number. A lost rank is reported once,
// by whichever thread is first.
int fail_command(const std::string& message, ExitCode code);
// For the watchdog (WorldOptions::announce_loss), from its own thread.
void announce_loss(const std::string& message);
bool loss_announced();

}  // namespace trireme
