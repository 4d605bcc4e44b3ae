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
  std::string mode = "wait";  // "wait", "abort" or "keep" (Handover)
  std::vector<std::string> unknown;
};

// Parses a body. ApiError that names the field: 400, or 501 if the server does not support it.
WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kReplaceWeightsEndpoint, kServedWeightsEndpoint;

}  // namespace trireme
