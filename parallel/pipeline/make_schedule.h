// Schedules by name, or from a file.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.h"

namespace trireme {

// Built-in schedule; kind must not be kCustom. InputError with the configuration keys if the kind
// does not allow these sizes.
Schedule make_schedule(ScheduleKind kind, int stages, int chunks, int micro_batches);

// `schedule`: a name (gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2) or the path of a file (with a
// slash or a dot), whose sizes must match the given ones.
Schedule load_schedule(const std::string& schedule, int stages, int chunks, int micro_batches);

}  // namespace trireme
