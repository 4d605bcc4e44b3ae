// `prompt_logprobs` of a response, in vLLM's format.
#pragma once

#include <span>

#include "engine/text/tokenizer.h"
#include "serving/api/json_writer.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

// Returns `logprob`, raised to -9999 if it is lower, as in OpenAI's responses: JSON has no
// -infinity.
double reported_logprob(double logprob);

// Writes [null, {"17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}, ...}, ...]: null for the
// prompt's first token, then for each of `tokens` an object with that token and the most probable
// others, keyed by id. tokens: those of the prompt from the second on. rank: by probability, from
// 1.
void write_prompt_logprobs(JsonWriter& json, std::span<const OutputToken> tokens,
                           const Tokenizer& tokenizer);

}  // namespace trireme
