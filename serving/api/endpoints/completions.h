// POST /v1/completions.
#pragma once

#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;
  bool echo = false;        // each text begins with its prompt
  bool add_special = true;  // adds special tokens around a prompt that is a text
  // Choices computed for each prompt, at least n; the best n are returned. 0: n.
  int64_t best_of = 0;
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
CompletionRequest parse_completion(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kCompletionsEndpoint;

}  // namespace trireme
