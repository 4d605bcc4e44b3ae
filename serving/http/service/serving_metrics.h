// Prometheus metrics of a server: those of its engines (engine_metrics.h), and its own, whose only
// common label is model_name. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "serving/http/service/engine_metrics.h"

namespace trireme {

// Returns the names of the adapters in these slots (EngineCounts), comma-separated.
using AdapterNames = std::function<std::string(const std::vector<int32_t>& slots)>;

class ServingMetrics {
 public:
  // engines: number of replicas, all with the same cache.
  ServingMetrics(const std::string& model_name, int64_t max_model_len, const CacheInfo& cache,
                 size_t engines = 1);
  ~ServingMetrics();

  EngineMetrics& of(size_t engine);
  void weights(int64_t version);  // served version; called only if weights can be replaced
  void weights_replaced(const char* outcome);  // done, refused or failed; requires weights() before
  // Sets the numbers of grammars waiting for compilation, of bytes of all live grammars, and of
  // masks computed outside the engines' threads since start.
  void grammars(int64_t waiting, int64_t bytes, int64_t masks);
  // Records a request (RequestSummary, serving/http/server/server_config.h). bytes: of its body.
  void http_request(const std::string& handler, const std::string& method, int status,
                    double seconds, int64_t bytes);

  // Prometheus text format, with each engine's gauges as of `counts`, which has one entry per
  // engine. adapters: number of slots; 0: names_of is not called.
  std::string text(std::span<const EngineCounts> counts, int64_t adapters,
                   const AdapterNames& names_of);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace trireme
