// Load generator: sends a workload to a server and times the responses. Uses one thread, and one
// connection per request in flight.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "serving/bench/latency.h"
#include "serving/bench/workload.h"
#include "serving/client/server_address.h"

namespace trireme {

struct LoadOptions {
  ServerAddress server;
  std::string path = "/v1/completions";
  bool chat = false;  // the events are those of chat completions
  std::string api_key = {}, ca_file = {};
  int64_t max_concurrency = 0;                 // limit on requests in flight; 0: none
  std::chrono::milliseconds timeout{300'000};  // maximum time without a byte from the server
};

struct LoadResult {
  std::vector<RequestOutcome> outcomes;  // by request
  double duration = 0;                   // seconds
  bool has_usage = true;  // the server has reported the token counts of all successful requests
};

// Sends request i arrivals[i] seconds after the start, or later if max_concurrency delays it or an
// earlier request; the delay is not part of its times. arrivals: one per request, ascending. A
// failed request has its error in its outcome. A connection that the server closes between two
// requests is reopened. InputError if the certificates cannot be read.
LoadResult run_load(const LoadOptions& options, const std::vector<LoadRequest>& requests,
                    const std::vector<double>& arrivals);

// Returns the first model id of /v1/models. Error if there is none, or if the request fails.
std::string first_served_model(const LoadOptions& options);

}  // namespace trireme
