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
  std::string model;
  std::string prompt;                                       // for a text
  std::shared_ptr<const nlohmann::ordered_json> variables;  // for a chat; null: a text
  bool add_special = true;
  bool token_strings = false;
  std::vector<std::string> unknown;
};

// Parses a body. ApiError that names the field: 400, or 501 if the server does not support it.
TokenizeRequest parse_tokenize(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kTokenizeEndpoint;

}  // namespace trireme
