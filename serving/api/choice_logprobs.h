// Writer of a choice's `logprobs`, in the format of chats or of completions.
#pragma once

#include "serving/api/generation_choice.h"

namespace trireme {

// Writes choice.reported as the value of the member: an object.
void write_logprobs(JsonWriter& json, const ResponseContext& response,
                    const GenerationChoice& choice);

}  // namespace trireme
