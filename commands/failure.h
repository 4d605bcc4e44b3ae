// Failure report and exit code of a command.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace trireme {

// Reports the failure (report_failure) and returns the code's number. A lost rank is reported once,
// by the first thread that gets here.
int fail_command(const std::string& message, ExitCode code);
// For the watchdog (WorldOptions::announce_loss), called in its thread.
void announce_loss(const std::string& message);
bool loss_announced();

}  // namespace trireme
