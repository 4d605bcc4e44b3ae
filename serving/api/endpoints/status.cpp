#include "serving/api/endpoints/status.h"

namespace trireme {

const Endpoint kModelsEndpoint = {
    .method = "GET", .path = "/v1/models", .summary = "List the served models"};
const Endpoint kModelEndpoint = {.method = "GET", .path = "/v1/models/*"};
const Endpoint kVersionEndpoint = {
    .method = "GET", .path = "/version", .summary = "Server version"};
const Endpoint kMetricsEndpoint = {.method = "GET",
                                   .path = "/metrics",
                                   .access = Access::kMetrics,
                                   .summary = "Prometheus metrics",
                                   .content_type = "text/plain; version=0.0.4; charset=utf-8"};
const Endpoint kHealthEndpoint = {.method = "GET",
                                  .path = "/health",
                                  .access = Access::kOpen,
                                  .summary = "Engine health",
                                  .content_type = "text/plain"};
const Endpoint kHealthLiveEndpoint = {.method = "GET",
                                      .path = "/health/live",
                                      .access = Access::kOpen,
                                      .summary = "Liveness: the server responds"};
const Endpoint kHealthReadyEndpoint = {.method = "GET",
                                       .path = "/health/ready",
                                       .access = Access::kOpen,
                                       .summary = "Readiness: the server accepts requests"};
const Endpoint kOpenApiEndpoint = {.method = "GET", .path = "/openapi.json"};

}  // namespace trireme
