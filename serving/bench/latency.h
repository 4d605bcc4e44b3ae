// Results of a load run, as vLLM's benchmark defines them. All times are in seconds.
//
//   TTFT  from sending a request to the first event with a token; E2EL if no event has one
//   ITL   from one event with tokens to the next: one value per gap
//   E2EL  from sending a request to the last event with a choice
//   TPOT  (E2EL - TTFT) / (output tokens - 1); undefined for requests of one token, which meet any
//         limit on it
//
// Throughputs are per second. They count successful requests, over the time from the start of the
// run to the end of the last response.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct RequestOutcome {
  std::string error = {};  // empty: the request succeeded
  double sent = 0;         // time since the start of the run
  double ttft = 0, e2el = 0;
  std::vector<double> itl = {};
  int64_t input_tokens = 0, output_tokens = 0;  // input_tokens 0: unknown
};

struct Distribution {
  size_t count = 0;
  double mean = 0, deviation = 0, p50 = 0, p90 = 0, p99 = 0;  // all 0 without values
};

// Percentiles interpolate linearly between the two nearest values (numpy's default). The deviation
// is the population's standard deviation.
Distribution distribution_of(std::vector<double> values);

// Limits that a request must meet to count as good, in seconds; negative: no limit.
struct ServiceLevel {
  double ttft = -1, tpot = -1, e2el = -1;
  bool any() const { return ttft >= 0 || tpot >= 0 || e2el >= 0; }
};

// Parses bounds such as "ttft:500", "tpot:50" and "e2el:3000", in milliseconds, each at most once.
// InputError names an invalid bound.
ServiceLevel parse_service_level(const std::vector<std::string>& bounds);

struct LoadReport {
  double duration = 0;
  int64_t completed = 0, failed = 0;            // requests
  int64_t input_tokens = 0, output_tokens = 0;  // of completed requests
  int64_t good = 0;                             // requests completed within the service level
  int64_t max_concurrent = 0;  // maximum of successful requests in flight at the same time
  Distribution ttft = {}, tpot = {}, itl = {}, e2el = {};

  double request_rate() const { return static_cast<double>(completed) / duration; }
  double good_rate() const { return static_cast<double>(good) / duration; }
  double output_rate() const { return static_cast<double>(output_tokens) / duration; }
  double token_rate() const { return static_cast<double>(input_tokens + output_tokens) / duration; }
};

// Requires duration > 0.
LoadReport report_of(const std::vector<RequestOutcome>& outcomes, double duration,
                     const ServiceLevel& level);

}  // namespace trireme
