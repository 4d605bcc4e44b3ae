// POST /v1/embeddings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/embeddings_reply.h"
#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  EmbeddingFormat format;
  std::optional<int64_t> dimensions;
  bool normalize = true;
  bool add_special = true;
  std::optional<int64_t> truncate_prompt_tokens;  // -1: as many as the server computes
  bool keeps_end = true;                          // of a longer text
  std::string cache_salt;
  std::vector<std::string> unknown;
};

// ApiError (400, or 501 for what this server does not do) names the field.
EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kEmbeddingsEndpoint;

}  // namespace trireme
