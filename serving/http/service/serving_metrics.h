// What Prometheus is told: of the engines (engine_metrics.h), and of the server, whose series have
// the label model_name only. Any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "serving/http/service/engine_metrics.h"

namespace trireme {

// Of adapters that sequences name (EngineCounts), with commas between them.
using AdapterNames = std::function<std::string(const std::vector<int32_t>& slots)>;

class ServingMetrics {
 public:
  // engines: all alike.
  ServingMetrics(const std::string& model_name, int64_t max_model_len, const CacheInfo& cache,
                 size_t engines = 1);
  ~ServingMetrics();

  EngineMetrics& of(size_t engine);
  void weights(int64_t version);               // that are served; where they can be replaced
  void weights_replaced(const char* outcome);  // done, refused or failed
  // Grammars that wait to be compiled, bytes of all live ones, and masks made beside the engines so
  // far.
  void grammars(int64_t waiting, int64_t bytes, int64_t masks);
  void http_request(const std::string& handler, const std::string& method, int status,
                    double seconds, int64_t bytes);

  // The text format; gauges as of now, of each engine. adapters: that there is room for; 0: none,
  // and nobody is asked for names.
  std::string text(std::span<const EngineCounts> counts, int64_t adapters,
                   const AdapterNames& names_of);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace trireme
