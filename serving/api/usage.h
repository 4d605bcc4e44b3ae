// `usage` of a response: token counts.
#pragma once

#include <cstdint>

#include "serving/api/json_writer.h"

namespace trireme {

// cached_tokens: those of prompt_tokens that were found in the prefix cache.
struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// Writes the value of the member: an object.
void write_usage(JsonWriter& json, const Usage& usage);

}  // namespace trireme
