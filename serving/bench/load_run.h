// Sends a workload to a server and times the answers: one thread, as many connections as requests
// are under way.
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
  bool chat = false;  // how events are read
  std::string api_key = {}, ca_file = {};
  int64_t max_concurrency = 0;                 // requests under way at most; 0: no bound
  std::chrono::milliseconds timeout{300'000};  // that a server may be silent
};

struct LoadResult {
  std::vector<RequestOutcome> outcomes;  // of each request, in their order
  double duration = 0;                   // seconds
  bool has_usage = true;                 // all numbers of tokens are the server's
};

// Request i is sent arrivals[i] seconds after the beginning, or later where max_concurrency makes
// it wait: waiting is no part of its times. What goes wrong with a request is its outcome's error.
// A connection that the server closed between two requests is opened anew. InputError for
// certificates that cannot be read.
LoadResult run_load(const LoadOptions& options, const std::vector<LoadRequest>& requests,
                    const std::vector<double>& arrivals);

// The first id of /v1/models. Error where there is none.
std::string first_served_model(const LoadOptions& options);

}  // namespace trireme
