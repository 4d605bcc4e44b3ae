#include "serving/router/router_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>

namespace trireme {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1,  0.25, 0.5,
                                              1.0,   2.5,   5.0,  10.0, 20.0, 40.0, 80.0, 160.0};
constexpr std::array kEnds = {"answered", "unready", "connect", "broken", "timeout", "cancelled"};
constexpr std::array kAffinities = {"none", "hit", "miss"};

}  // namespace

struct RouterMetrics::Series {
  prometheus::Registry registry;
  std::array<Counter*, kAffinities.size()> affinity{};
  struct Server {
    std::array<Counter*, kEnds.size()> ends{};
    Counter* retries = nullptr;
    Gauge *up = nullptr, *load = nullptr;
    Histogram* first_byte = nullptr;
  };
  std::vector<Server> servers;
  Family<Counter>& requests = prometheus::BuildCounter()
                                  .Name("http_requests_total")
                                  .Help("HTTP requests by handler, method and status class.")
                                  .Register(registry);
};

RouterMetrics::RouterMetrics(const std::vector<std::string>& servers)
    : series_(std::make_unique<Series>()) {
  prometheus::Registry& registry = series_->registry;
  auto& affinity =
      prometheus::BuildCounter()
          .Name("trireme:router_affinity_total")
          .Help(
              "Routed requests by prefix match: hit, miss, or none (prompt without a full block).")
          .Register(registry);
  for (size_t i = 0; i < kAffinities.size(); ++i)
    series_->affinity[i] = &affinity.Add({{"result", kAffinities[i]}});
  auto& attempts = prometheus::BuildCounter()
                       .Name("trireme:router_attempts_total")
                       .Help("Requests sent to a server, by how they ended.")
                       .Register(registry);
  auto& retries = prometheus::BuildCounter()
                      .Name("trireme:router_retries_total")
                      .Help("Requests retried on another server after this one failed.")
                      .Register(registry);
  auto& up = prometheus::BuildGauge()
                 .Name("trireme:router_server_up")
                 .Help("1: the server is up and gets requests.")
                 .Register(registry);
  auto& load = prometheus::BuildGauge()
                   .Name("trireme:router_requests_running")
                   .Help("Requests running on the server.")
                   .Register(registry);
  auto& first = prometheus::BuildHistogram()
                    .Name("trireme:router_first_byte_seconds")
                    .Help(
                        "Seconds from a request's arrival at the router to the first byte of the "
                        "server's response.")
                    .Register(registry);
  for (const std::string& url : servers) {
    Series::Server server;
    for (size_t i = 0; i < kEnds.size(); ++i)
      server.ends[i] = &attempts.Add({{"server", url}, {"end", kEnds[i]}});
    server.retries = &retries.Add({{"server", url}});
    server.up = &up.Add({{"server", url}});
    server.load = &load.Add({{"server", url}});
    server.first_byte = &first.Add({{"server", url}}, kSeconds);
    series_->servers.push_back(server);
  }
}

RouterMetrics::~RouterMetrics() = default;

void RouterMetrics::chosen(Affinity affinity) {
  series_->affinity.at(static_cast<size_t>(affinity))->Increment();
}

void RouterMetrics::ended(size_t server, AttemptEnd how) {
  series_->servers.at(server).ends.at(static_cast<size_t>(how))->Increment();
}

void RouterMetrics::retried(size_t server) { series_->servers.at(server).retries->Increment(); }

void RouterMetrics::first_byte(size_t server, double seconds) {
  series_->servers.at(server).first_byte->Observe(seconds);
}

void RouterMetrics::http_request(const RequestSummary& summary) {
  // Clients choose the method: unknown ones would create an unbounded number of series.
  const bool usual =
      summary.method == "GET" || summary.method == "POST" || summary.method == "HEAD";
  series_->requests
      .Add({{"handler", summary.handler},
            {"method", usual ? summary.method : "other"},
            {"status", std::string(1, static_cast<char>('0' + summary.status / 100)) + "xx"}})
      .Increment();
}

std::string RouterMetrics::text(const ServerChoice& choice) {
  for (size_t i = 0; i < series_->servers.size(); ++i) {
    series_->servers[i].up->Set(choice.is_up(i) ? 1 : 0);
    series_->servers[i].load->Set(static_cast<double>(choice.load(i)));
  }
  return prometheus::TextSerializer().Serialize(series_->registry.Collect());
}

}  // namespace trireme
