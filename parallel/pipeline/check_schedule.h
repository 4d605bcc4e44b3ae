// Validation of a schedule from a file.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.h"

namespace trireme {

// Checks that there is one list per stage; that every rank runs each (chunk, micro-batch) forward
// once and, in training, then backward once, whole or as input half and weight half; that indices
// are in range; and that no rank waits forever. Otherwise throws InputError beginning with `what`.
void check_schedule(const Schedule& schedule, const std::string& what);

}  // namespace trireme
