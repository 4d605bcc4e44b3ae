// POST /v1/completions.
#pragma once

#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special = true;
  int64_t best_of =
      0;  // so many choices of each prompt are computed, at least n, and the best n told; 0: n
};

// ApiError (400, or 501 for what this server does not do) names the field.
CompletionRequest parse_completion(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kCompletionsEndpoint;

}  // namespace trireme
