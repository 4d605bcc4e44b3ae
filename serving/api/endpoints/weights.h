// POST and GET /admin/weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct WeightsRequest {
  std::string model;          // path of the new weights; empty: the served path
  std::string mode = "wait";  // "wait", "abort" or "keep": Handover (serving/engine/engine.h)
  std::vector<std::string> unknown;  // unknown fields, which were ignored
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kReplaceWeightsEndpoint, kServedWeightsEndpoint;

}  // namespace trireme
