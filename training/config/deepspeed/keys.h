// Keys of DeepSpeed configurations, each with how it is handled: read, without effect, or refused.
#pragma once

#include <string>

#include "engine/config/schema.h"

namespace trireme {

// Adds the keys that are DeepSpeed's alone: without effect, refused, or not available. The schema
// of a run has them too, so that a run's configuration may contain DeepSpeed's keys.
void add_deepspeed_keys(Schema& schema);

// Schema of a DeepSpeed file: the keys of add_deepspeed_keys(), and those that a run reads, under
// their DeepSpeed names.
const Schema& deepspeed_schema();

// Text of docs/reference/deepspeed-keys.md.
std::string deepspeed_keys_page();

}  // namespace trireme
