// POST /v1/embeddings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/embeddings_response.h"
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
  std::optional<int64_t> truncate_prompt_tokens;  // -1: the server's maximum length
  bool keeps_end = true;                          // truncation keeps the end of a longer text
  std::string cache_salt;
  std::vector<std::string> unknown;
};

// Parses a body. ApiError that names the field: 400, or 501 if the server does not support it.
EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kEmbeddingsEndpoint;

}  // namespace trireme
