// POST /detokenize.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct DetokenizeRequest {
  std::string model;  // "": the served model
  std::vector<int32_t> tokens;
  bool skip_special = true;          // leaves control tokens out of the text
  std::vector<std::string> unknown;  // unknown fields, which were ignored
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
DetokenizeRequest parse_detokenize(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kDetokenizeEndpoint;

}  // namespace trireme
