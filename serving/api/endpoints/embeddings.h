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
  std::optional<int64_t> dimensions;  // to which vectors are truncated; absent: all
  bool normalize = true;              // scales vectors to length 1
  bool add_special = true;            // adds special tokens around a text
  // Maximum tokens of a text, to which longer ones are truncated. -1: the server's maximum length;
  // absent: longer texts than that are rejected.
  std::optional<int64_t> truncate_prompt_tokens;
  bool keeps_end = true;  // truncation keeps the end of a longer text, else its start
  std::string cache_salt;
  std::vector<std::string> unknown;  // unknown fields, which were ignored
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kEmbeddingsEndpoint;

}  // namespace trireme
