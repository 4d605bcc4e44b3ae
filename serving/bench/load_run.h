// Load generator: sends a workload to a server and times the responses, on one thread, with one
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
  bool chat = false;  // format of the events
  std::string api_key = {}, ca_file = {};
  int64_t max_concurrency = 0;                 // limit on requests in flight; 0: none
  std::chrono::milliseconds timeout{300'000};  // limit on the server's silence
};

struct LoadResult {
  std::vector<RequestOutcome> outcomes;  // by request
  double duration = 0;                   // seconds
  bool has_usage = true;                 // all token counts are the server's
};

// Sends request i arrivals[i] seconds after the start, or later if max_concurrency delays it; the
// delay is not part of its times. A failure of a request is stored in its outcome's error. A
// connection closed by the server between two requests is reopened. InputError for unreadable
// certificates.
LoadResult run_load(const LoadOptions& options, const std::vector<LoadRequest>& requests,
                    const std::vector<double>& arrivals);

// First id of /v1/models. Error if there is none.
std::string first_served_model(const LoadOptions& options);

}  // namespace trireme
