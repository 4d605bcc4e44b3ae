// Check of a schedule from a file.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.h"

namespace trireme {

// Every (chunk, micro-batch) of every rank forward once and, in training, backward once, whole or
// in halves; indices in range; no rank waits for ever. InputError beginning with `what` otherwise.
void check_schedule(const Schedule& schedule, const std::string& what);

}  // namespace trireme
