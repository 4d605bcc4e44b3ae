// POST /tokenize.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct TokenizeRequest {
  std::string model;   // "": the served model
  std::string prompt;  // for a text
  // For a chat: as in ChatRequest (chat.h); null: a text.
  std::shared_ptr<const nlohmann::ordered_json> variables;
  bool add_special = true;           // adds special tokens, for a chat before the rendered text
  bool token_strings = false;        // also returns the text of each token
  std::vector<std::string> unknown;  // unknown fields, which were ignored
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
TokenizeRequest parse_tokenize(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kTokenizeEndpoint;

}  // namespace trireme
