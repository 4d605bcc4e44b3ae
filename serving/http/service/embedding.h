// Embeddings for an endpoint: from texts to a response that is written of their vectors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "serving/http/service/service_context.h"

namespace trireme {

struct EmbeddingResponse {
  int64_t dimensions = 0;    // of a vector: the first so many
  bool normalises = true;    // as a vector of length one
  int64_t bytes = 0;         // of the body, at most
  const char* way_out = "";  // what a client may do where `bytes` are too many
  std::function<std::string(const std::vector<std::vector<float>>& embeddings,
                            int64_t prompt_tokens)>
      write_body = {};
};

// Texts of a request, and how they are tokenized.
struct EmbeddedTexts {
  const std::vector<Prompt>& texts;
  const char* param;        // their field
  bool add_special = true;  // tokens around a text
  int64_t kept_tokens = 0;  // so many are kept of a longer one; 0: it is refused
  bool keeps_end = true;    // the last ones; else the first
  std::string salt = {};    // requests with another one share no cached prefixes
};

// ApiError where texts are too long, or there is no room for them.
HttpAnswer embed(ServiceContext& service, const HttpRequest& http, const ServedId& model,
                 const EmbeddedTexts& input, EmbeddingResponse response);

}  // namespace trireme
