#include "serving/http/service/serving_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>

namespace trireme {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Labels = std::map<std::string, std::string>;

const Histogram::BucketBoundaries kSize = {1e3, 1e4, 1e5, 1e6, 1e7};

}  // namespace

struct ServingMetrics::Series {
  explicit Series(const std::string& model_name) : labels{{"model_name", model_name}} {}

  Labels with(Labels more) const {
    more.insert(labels.begin(), labels.end());
    return more;
  }

  Labels labels;
  prometheus::Registry registry;
  std::vector<std::unique_ptr<EngineMetrics>> engines;
  std::mutex mutex;  // serializes text(), which updates counters
  prometheus::Family<Counter>& requests =
      prometheus::BuildCounter()
          .Name("http_requests_total")
          .Help("HTTP requests by handler, method and status class.")
          .Register(registry);
  prometheus::Family<Histogram>& durations =
      prometheus::BuildHistogram()
          .Name("http_request_duration_seconds")
          .Help("Seconds from a request's head to the end of its response.")
          .Register(registry);
  prometheus::Family<Histogram>& sizes = prometheus::BuildHistogram()
                                             .Name("http_request_size_bytes")
                                             .Help("Bytes of request bodies.")
                                             .Register(registry);
  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Gauge& grammars_waiting = gauge("trireme:grammars_waiting",
                                  "Schemas, expressions and grammars waiting for compilation.");
  Gauge& grammar_bytes = gauge("trireme:grammar_bytes", "Bytes of compiled grammars.");
  Counter& masks = prometheus::BuildCounter()
                       .Name("trireme:grammar_masks_total")
                       .Help(
                           "Grammar masks that took too long for the engine's thread and were "
                           "computed on another.")
                       .Register(registry)
                       .Add(labels);
  // nullptr, empty: weights cannot be replaced.
  Gauge* weights_version = nullptr;
  std::map<std::string, Counter*> weight_reloads;
};

ServingMetrics::ServingMetrics(const std::string& model_name, int64_t max_model_len,
                               const CacheInfo& cache, size_t engines)
    : series_(std::make_unique<Series>(model_name)) {
  for (size_t i = 0; i < engines; ++i)
    series_->engines.push_back(
        std::make_unique<EngineMetrics>(series_->registry, model_name, i, max_model_len, cache));
}

ServingMetrics::~ServingMetrics() = default;

EngineMetrics& ServingMetrics::of(size_t engine) { return *series_->engines.at(engine); }

void ServingMetrics::weights(int64_t version) {
  Series& s = *series_;
  if (s.weights_version == nullptr) {
    s.weights_version =
        &prometheus::BuildGauge()
             .Name("trireme:weights_version")
             .Help(
                 "Version of the served weights: 1 at the start, incremented by each replacement.")
             .Register(s.registry)
             .Add(s.labels);
    auto& reloads = prometheus::BuildCounter()
                        .Name("trireme:weight_reloads_total")
                        .Help("Replacements of weights by outcome.")
                        .Register(s.registry);
    for (const char* outcome : {"done", "refused", "failed"})
      s.weight_reloads[outcome] = &reloads.Add(s.with({{"outcome", outcome}}));
  }
  s.weights_version->Set(static_cast<double>(version));
}

void ServingMetrics::weights_replaced(const char* outcome) {
  series_->weight_reloads.at(outcome)->Increment();
}

void ServingMetrics::grammars(int64_t waiting, int64_t bytes, int64_t masks) {
  Series& s = *series_;
  s.grammars_waiting.Set(static_cast<double>(waiting));
  s.grammar_bytes.Set(static_cast<double>(bytes));
  const std::lock_guard lock(s.mutex);
  const double more = static_cast<double>(masks) - s.masks.Value();
  if (more > 0) s.masks.Increment(more);
}

void ServingMetrics::http_request(const std::string& handler, const std::string& method, int status,
                                  double seconds, int64_t bytes) {
  Series& s = *series_;
  Labels labels = s.labels;
  labels.emplace("handler", handler);
  s.sizes.Add(labels, kSize).Observe(static_cast<double>(bytes));
  labels.emplace("method", method);
  s.durations.Add(labels, latency_buckets()).Observe(seconds);
  labels.emplace("status", std::string(1, static_cast<char>('0' + status / 100)) + "xx");
  s.requests.Add(labels).Increment();
}

std::string ServingMetrics::text(std::span<const EngineCounts> counts, int64_t adapters,
                                 const AdapterNames& names_of) {
  Series& s = *series_;
  const std::lock_guard lock(s.mutex);
  for (size_t i = 0; i < s.engines.size(); ++i) {
    s.engines[i]->set(counts[i]);
    if (adapters > 0)
      s.engines[i]->adapters(adapters, names_of(counts[i].running_adapters),
                             names_of(counts[i].waiting_adapters));
  }
  return prometheus::TextSerializer().Serialize(s.registry.Collect());
}

}  // namespace trireme
