// Writer of a choice's `logprobs`, in the format of chats or of completions.
#pragma once

#include "serving/api/generation_choice.h"

namespace trireme {

void write_logprobs(JsonWriter& json, const ResponseContext& response,
                    const GenerationChoice& choice);

}  // namespace trireme
