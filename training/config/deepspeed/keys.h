// Keys of a DeepSpeed configuration: which a run reads, which have no effect here, which are
// refused.
#pragma once

#include <string>

#include "engine/config/schema.h"

namespace trireme {

// Rows of keys that are DeepSpeed's alone: without effect, refused, or not available. A run's own
// schema has them too, so that DeepSpeed's words may stand in a run's configuration.
void add_deepspeed_keys(Schema& schema);

// Table of a whole DeepSpeed file: these rows, and those that a run reads under their DeepSpeed
// names.
const Schema& deepspeed_schema();

// Text of docs/reference/deepspeed-keys.md.
std::string deepspeed_keys_page();

}  // namespace trireme
