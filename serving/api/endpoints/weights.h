// POST and GET /admin/weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

struct WeightsRequest {
  std::string model;  // path; empty: the one that is served
  std::string mode = "wait";
  std::vector<std::string> unknown;
};

// ApiError names the field (400; 501 if it is not available on this server).
WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kReplaceWeightsEndpoint, kServedWeightsEndpoint;

}  // namespace trireme
