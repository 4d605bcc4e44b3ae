// What a load run has found, by the definitions of vLLM's benchmark. Times in seconds.
//
//   TTFT  from sending a request to the first event with a token
//   ITL   from one event with tokens to the next: one value for each gap
//   E2EL  from sending a request to the last event of its text
//   TPOT  (E2EL - TTFT) / (output tokens - 1); requests of one token have none
//
// Throughputs are of the requests that succeeded, over the time from the first arrival to the last
// answer's end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct RequestOutcome {
  std::string error = {};  // "" where it succeeded
  double sent = 0;         // since the run began
  double ttft = 0, e2el = 0;
  std::vector<double> itl = {};
  int64_t input_tokens = 0, output_tokens = 0;
};

struct Distribution {
  size_t count = 0;
  double mean = 0, deviation = 0, p50 = 0, p90 = 0, p99 = 0;  // all 0 without values
};

// Percentiles lie between the two nearest values, linearly (numpy's default); deviation is the
// population's.
Distribution distribution_of(std::vector<double> values);

// What a request must keep to for it to count as good; absent bounds are negative.
struct ServiceLevel {
  double ttft = -1, tpot = -1, e2el = -1;
  bool any() const { return ttft >= 0 || tpot >= 0 || e2el >= 0; }
};

// "ttft:500 tpot:50 e2el:3000", each once at most, in milliseconds. InputError names what is none
// of it.
ServiceLevel parse_service_level(const std::vector<std::string>& bounds);

struct LoadReport {
  double duration = 0;
  int64_t completed = 0, failed = 0;
  int64_t input_tokens = 0, output_tokens = 0;
  int64_t good = 0;             // completed within the service level
  int64_t most_concurrent = 0;  // requests under way at a time
  Distribution ttft = {}, tpot = {}, itl = {}, e2el = {};

  double request_rate() const { return static_cast<double>(completed) / duration; }
  double good_rate() const { return static_cast<double>(good) / duration; }
  double output_rate() const { return static_cast<double>(output_tokens) / duration; }
  double token_rate() const { return static_cast<double>(input_tokens + output_tokens) / duration; }
};

// duration > 0.
LoadReport report_of(const std::vector<RequestOutcome>& outcomes, double duration,
                     const ServiceLevel& level);

}  // namespace trireme
