// Status endpoints, which only report: GET /v1/models, /v1/models/ID, /version, /metrics, /health,
// /health/live, /health/ready and /openapi.json.
#pragma once

#include "serving/api/endpoint.h"

namespace trireme {

extern const Endpoint kModelsEndpoint, kModelEndpoint, kVersionEndpoint, kMetricsEndpoint,
    kHealthEndpoint, kHealthLiveEndpoint, kHealthReadyEndpoint, kOpenApiEndpoint;

}  // namespace trireme
