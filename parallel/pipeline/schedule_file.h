// Schedule files: reader and writer of pipeline schedules as JSON.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.h"

namespace trireme {

// Reads a schedule with its sizes. Format: docs/design/pipeline-parallelism.md. If it is invalid,
// InputError naming file and instruction. what: name of the source, for messages.
Schedule read_schedule_file(const std::string& path);
Schedule parse_schedule(const std::string& json_text, const std::string& what);
// Inverse of parse_schedule(); the kind and the name are not written.
std::string schedule_json(const Schedule& schedule);

}  // namespace trireme
