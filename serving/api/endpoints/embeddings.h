// POST /v1/embeddings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  std::optional<int64_t> dimensions;
  std::vector<std::string> unknown;
};

// ApiError (400, or 501 for what this server does not do) names the field.
EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kEmbeddingsEndpoint;

}  // namespace trireme
