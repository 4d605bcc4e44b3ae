// Embedding for an endpoint: from a request's texts to a response with their vectors, computed by
// the engines.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "serving/http/service/service_context.h"

namespace trireme {

struct EmbeddingResponse {
  int64_t dimensions = 0;    // to which the returned vectors are truncated
  bool normalizes = true;    // scales each vector to length 1, after it is truncated
  int64_t bytes = 0;         // estimated bytes buffered for the response
  const char* way_out = "";  // advice in the error when `bytes` exceeds the limit
  // Returns the response body. embeddings: one vector per text, in order; prompt_tokens: of all
  // texts.
  std::function<std::string(const std::vector<std::vector<float>>& embeddings,
                            int64_t prompt_tokens)>
      write_body = {};
};

// Texts of a request, and how to tokenize them.
struct EmbeddedTexts {
  const std::vector<Prompt>& texts;
  const char* param;        // field that holds them
  bool add_special = true;  // adds special tokens around each text
  // Longer texts are truncated to this number of tokens. 0: texts longer than the model's maximum
  // length are rejected.
  int64_t kept_tokens = 0;
  bool keeps_end = true;  // truncation keeps the end, else the start
  std::string salt = {};  // the request's cache_salt (salt_of, generation.h)
};

// Tokenizes the texts and returns a pending response. ApiError when a text is empty or too long,
// the response would be too large, or admission is refused.
HandlerResult embed(ServiceContext& service, const HttpRequest& http, const ServedId& model,
                    const EmbeddedTexts& input, EmbeddingResponse response);

}  // namespace trireme
