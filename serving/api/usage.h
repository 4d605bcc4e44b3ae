// `usage` of a response: token counts.
#pragma once

#include <cstdint>

#include "serving/api/json_writer.h"

namespace trireme {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

void write_usage(JsonWriter& json, const Usage& usage);

}  // namespace trireme
