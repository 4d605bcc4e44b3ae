// What Prometheus is told of one engine, under the names that dashboards made for vLLM read. Every
// series has the labels model_name and engine, the number of the replica. Any thread may call, but
// for what says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/engine/engine.h"
#include "transformer/model/flops.h"

namespace prometheus {
class Registry;
}

namespace trireme {

struct CacheInfo {
  int64_t block_size = 0, blocks = 0;
  std::string dtype = {};
  bool prefix_caching = true;
  bool speculation = false;  // its counters are there
  bool old_names = false;    // those of earlier vLLM too, which dashboards still ask for
  InferenceCost cost = {};   // all ranks of the engine together
  int ranks = 1;
};

// A sequence that has come to its end.
struct FinishedSequence {
  const char* reason = "";  // stop, length, abort or error
  int64_t generated = 0;
  double seconds = 0;         // since the request arrived
  double decode_seconds = 0;  // from the first token to the last
  // Where it has come so far: until it was first computed, from then to its first token, and to its
  // last.
  std::optional<double> queue_seconds = {}, prefill_seconds = {}, inference_seconds = {};
};

// In seconds.
const std::vector<double>& latency_buckets();

class EngineMetrics {
 public:
  // The registry outlives this object.
  EngineMetrics(prometheus::Registry& registry, const std::string& model_name, size_t engine,
                int64_t max_model_len, const CacheInfo& cache);
  ~EngineMetrics();

  void step(const StepReport& report);
  // A request has come. max_tokens: 0: as many as there is room for.
  void entered(int64_t n, int64_t max_tokens);
  void prompt_computed(int64_t tokens, int64_t cached);  // once a prompt
  void first_token(double seconds);                      // since the request arrived
  void next_token(double seconds);                       // since the one before
  void generated(int64_t tokens);
  void finished(const FinishedSequence& sequence);
  void prompt_finished(int64_t longest);  // all sequences of a prompt are: tokens of the longest

  // The rest is for one thread at a time. Names with commas between them, of adapters that
  // sequences name; `most`: that there is room for.
  void adapters(int64_t most, const std::string& running, const std::string& waiting);
  void set(const EngineCounts& counts);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace trireme
