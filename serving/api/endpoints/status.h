// Status endpoints, which only report: models, health, version, metrics, OpenAPI document.
#pragma once

#include "serving/api/endpoint.h"

namespace trireme {

extern const Endpoint kModelsEndpoint, kModelEndpoint, kVersionEndpoint, kMetricsEndpoint,
    kHealthEndpoint, kHealthLiveEndpoint, kHealthReadyEndpoint, kOpenApiEndpoint;

}  // namespace trireme
