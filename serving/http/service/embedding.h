// Embeddings for an endpoint: from texts to a response that is written of their vectors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "serving/http/service/service_context.h"

namespace trireme {

struct EmbeddingResponse {
  int64_t dimensions = 0;    // of a vector: the first so many, as a vector of length one
  int64_t bytes = 0;         // of the body, at most
  const char* way_out = "";  // what a client may do where `bytes` are too many
  std::function<std::string(const std::vector<std::vector<float>>& embeddings,
                            int64_t prompt_tokens)>
      write_body = {};
};

// param: the field of the texts. ApiError where they are too long, or there is no room for them.
HttpAnswer embed(ServiceContext& service, const HttpRequest& http, const ServedId& model,
                 const std::vector<Prompt>& texts, const char* param, EmbeddingResponse response);

}  // namespace trireme
