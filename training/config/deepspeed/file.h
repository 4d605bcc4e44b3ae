// DeepSpeed configuration file, merged into a run's configuration; the run's own keys take
// precedence.
//
// The run names the file ("deepspeed": path, --deepspeed PATH), or the file is passed as the run's
// configuration (--config). docs/reference/deepspeed-keys.md lists how each key is handled.
#pragma once

#include <string>

#include "engine/config/reader.h"

namespace trireme {

// True if a document is a DeepSpeed file and not a run configuration: it has keys, and all of them
// are DeepSpeed's.
bool is_deepspeed_file(const Json& document);

// Merges the object under "deepspeed" into the document, where the run does not set the same key,
// and removes the object. Reports errors of the file under "deepspeed.KEY", and overridden values
// as notes.
void merge_deepspeed(Json& document, ConfigReport& report);

}  // namespace trireme
