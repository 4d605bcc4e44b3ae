// Validation of a schedule from a file.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.h"

namespace trireme {

// Checks that every rank runs each (chunk, micro-batch) forward once and, in training, backward
// once, whole or in halves; that indices are in range; and that no rank waits forever. Otherwise
// throws InputError beginning with `what`.
void check_schedule(const Schedule& schedule, const std::string& what);

}  // namespace trireme
