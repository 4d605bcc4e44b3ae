// POST /detokenize.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  bool skip_special = true;
  std::vector<std::string> unknown;
};

// Parses a body. ApiError that names the field: 400, or 501 if the server does not support it.
DetokenizeRequest parse_detokenize(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kDetokenizeEndpoint;

}  // namespace trireme
