// POST and GET /admin/weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct WeightsRequest {
  std::string model;  // empty: what is served
  std::string mode = "wait";
  std::vector<std::string> unknown;
};

// ApiError (400, or 501 for what this server does not do) names the field.
WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kReplaceWeightsEndpoint, kServedWeightsEndpoint;

}  // namespace trireme
