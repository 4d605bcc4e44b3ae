// Keys of DeepSpeed configurations: those read by a run, those without effect here, and those
// refused.
#pragma once

#include <string>

#include "engine/config/schema.h"

namespace trireme {

// Rows of keys that only DeepSpeed has: without effect, refused, or not available. A run's own
// schema has them too, so that a run's configuration may contain DeepSpeed's keys.
void add_deepspeed_keys(Schema& schema);

// Schema of a whole DeepSpeed file: these rows, and the keys that a run reads under their DeepSpeed
// names.
const Schema& deepspeed_schema();

// Content of docs/reference/deepspeed-keys.md.
std::string deepspeed_keys_page();

}  // namespace trireme
