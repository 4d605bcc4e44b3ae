#include "serving/api/endpoints/status.h"

namespace trireme {

const Endpoint kModelsEndpoint = {.method = "GET", .path = "/v1/models", .summary = "The models"};
const Endpoint kModelEndpoint = {.method = "GET", .path = "/v1/models/*"};
const Endpoint kVersionEndpoint = {
    .method = "GET", .path = "/version", .summary = "The server's version"};
const Endpoint kMetricsEndpoint = {.method = "GET",
                                   .path = "/metrics",
                                   .access = Access::kMetrics,
                                   .summary = "Metrics for Prometheus",
                                   .content_type = "text/plain; version=0.0.4; charset=utf-8"};
const Endpoint kHealthEndpoint = {.method = "GET",
                                  .path = "/health",
                                  .access = Access::kOpen,
                                  .summary = "Whether the engine works",
                                  .content_type = "text/plain"};
const Endpoint kHealthLiveEndpoint = {.method = "GET",
                                      .path = "/health/live",
                                      .access = Access::kOpen,
                                      .summary = "Whether the server answers"};
const Endpoint kHealthReadyEndpoint = {.method = "GET",
                                       .path = "/health/ready",
                                       .access = Access::kOpen,
                                       .summary = "Whether it takes requests"};
const Endpoint kOpenApiEndpoint = {.method = "GET", .path = "/openapi.json"};

}  // namespace trireme
