// Schedules by name, or from a file.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.h"

namespace trireme {

// InputError naming the configuration's keys for sizes that the kind cannot have. kCustom is
// refused.
Schedule make_schedule(ScheduleKind kind, int stages, int chunks, int micro_batches);

// `schedule` is a name (gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_h2) or the path of a file (with a
// slash or a dot), whose sizes must be the given ones.
Schedule load_schedule(const std::string& schedule, int stages, int chunks, int micro_batches);

}  // namespace trireme
