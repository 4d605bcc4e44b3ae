#include "serving/bench/latency.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"

namespace trireme {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double tpot_of(const RequestOutcome& outcome) {
  if (outcome.output_tokens < 2) return 0;
  return (outcome.e2el - outcome.ttft) / static_cast<double>(outcome.output_tokens - 1);
}

bool keeps(double value, double bound) { return bound < 0 || value <= bound; }

int64_t max_concurrent(const std::vector<RequestOutcome>& outcomes) {
  std::vector<std::pair<double, int>> changes;  // at equal times ends sort before starts
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) continue;
    changes.emplace_back(outcome.sent, 1);
    changes.emplace_back(outcome.sent + outcome.e2el, -1);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

}  // namespace

Distribution distribution_of(std::vector<double> values) {
  Distribution out{.count = values.size()};
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  out.deviation = std::sqrt(squares / count);
  out.p50 = percentile(values, 0.5);
  out.p90 = percentile(values, 0.9);
  out.p99 = percentile(values, 0.99);
  return out;
}

ServiceLevel parse_service_level(const std::vector<std::string>& bounds) {
  ServiceLevel out;
  for (const std::string& bound : bounds) {
    const size_t colon = std::min(bound.find(':'), bound.size());
    const std::string name = bound.substr(0, colon);
    double* const value = name == "ttft"   ? &out.ttft
                          : name == "tpot" ? &out.tpot
                          : name == "e2el" ? &out.e2el
                                           : nullptr;
    if (value == nullptr)
      fail_input("--goodput ", bound, " is not supported; supported: ttft:MS, tpot:MS, e2el:MS");
    if (*value >= 0) fail_input("--goodput ", bound, ": ", name, " is given twice");
    double ms = 0;
    const char* end = bound.data() + bound.size();
    const auto read = std::from_chars(std::min(bound.data() + colon + 1, end), end, ms);
    if (read.ec != std::errc() || read.ptr != end || !std::isfinite(ms) || ms < 0)
      fail_input("--goodput ", bound, ": expected milliseconds after the colon, 0 or more");
    *value = ms / 1e3;
  }
  return out;
}

LoadReport report_of(const std::vector<RequestOutcome>& outcomes, double duration,
                     const ServiceLevel& level) {
  TRIREME_CHECK(duration > 0, "the duration of the run must be above 0");
  LoadReport out{.duration = duration, .max_concurrent = max_concurrent(outcomes)};
  std::vector<double> ttft, tpot, itl, e2el;
  for (const RequestOutcome& outcome : outcomes) {
    if (!outcome.error.empty()) {
      ++out.failed;
      continue;
    }
    ++out.completed;
    out.input_tokens += outcome.input_tokens;
    out.output_tokens += outcome.output_tokens;
    ttft.push_back(outcome.ttft);
    e2el.push_back(outcome.e2el);
    if (outcome.output_tokens > 1) tpot.push_back(tpot_of(outcome));
    itl.insert(itl.end(), outcome.itl.begin(), outcome.itl.end());
    if (keeps(outcome.ttft, level.ttft) && keeps(tpot_of(outcome), level.tpot) &&
        keeps(outcome.e2el, level.e2el))
      ++out.good;
  }
  out.ttft = distribution_of(std::move(ttft));
  out.tpot = distribution_of(std::move(tpot));
  out.itl = distribution_of(std::move(itl));
  out.e2el = distribution_of(std::move(e2el));
  return out;
}

}  // namespace trireme
