// DeepSpeed configuration file, merged below a run's own keys.
//
// The run names it ("deepspeed": path, --deepspeed PATH), or it is the run's configuration file
// itself. docs/reference/deepspeed-keys.md lists how each of its keys is handled and which of two
// values takes precedence.
#pragma once

#include <string>

#include "engine/config/reader.h"

namespace trireme {

// True if a document is a DeepSpeed file, not a run configuration: it has DeepSpeed keys only.
bool is_deepspeed_file(const Json& document);

// Merges the object under "deepspeed" below the run's own keys and removes it. Reports problems of
// the file as "deepspeed.KEY", and values without effect as notes.
void merge_deepspeed(Json& document, ConfigReport& report);

}  // namespace trireme
