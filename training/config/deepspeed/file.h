// A DeepSpeed configuration file as a layer under a run's own keys.
//
// The run names it ("deepspeed": path, --deepspeed PATH), or it is the run's file itself. What
// becomes of each of its keys, and which of two values counts: docs/reference/deepspeed-keys.md.
#pragma once

#include <string>

#include "engine/config/reader.h"

namespace trireme {

// Whether a document is DeepSpeed's and no run's: it has no key of a run beside DeepSpeed's.
bool is_deepspeed_file(const Json& document);

// Puts what "deepspeed" says, an object, under the run's own keys and removes it. Problems of the
// file are reported as "deepspeed.KEY", values that do not count as notes.
void merge_deepspeed(Json& document, ConfigReport& report);

}  // namespace trireme
