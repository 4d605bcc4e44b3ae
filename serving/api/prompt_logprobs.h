// `prompt_logprobs` of an answer, in vLLM's shape.
#pragma once

#include <span>

#include "engine/text/tokenizer.h"
#include "serving/api/json_writer.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

// OpenAI's answers say -9999 for less, -infinity too, which JSON does not have.
double told_logprob(double logprob);

// [null, {"17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}, ...}, ...]: nothing of the
// first token, then of each of `tokens` an object with the token itself and the most probable
// others by their ids.
void write_prompt_logprobs(JsonWriter& json, std::span<const ChosenToken> tokens,
                           const Tokenizer& tokenizer);

}  // namespace trireme
