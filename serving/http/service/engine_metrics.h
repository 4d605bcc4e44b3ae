// Prometheus metrics of one engine, under vLLM's names, so that dashboards for vLLM can read them.
// Every series has the labels model_name and engine (number of the replica). Thread-safe, except
// where stated.
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
  bool speculation = false;  // exports its counters
  bool old_names = false;    // exports names of earlier vLLM versions too
  InferenceCost cost = {};   // all ranks of the engine together
  int ranks = 1;
};

// Summary of a sequence that has ended.
struct FinishedSequence {
  const char* reason = "";  // stop, length, abort or error
  int64_t generated = 0;
  double seconds = 0;         // since the request arrived
  double decode_seconds = 0;  // from the first token to the last
  // Seconds from submission to the first step, from the first step to the first token, and from the
  // first step to the last token. nullopt for phases that it has not reached.
  std::optional<double> queue_seconds = {}, prefill_seconds = {}, inference_seconds = {};
};

// Bucket boundaries in seconds.
const std::vector<double>& latency_buckets();

class EngineMetrics {
 public:
  // The registry must outlive this object.
  EngineMetrics(prometheus::Registry& registry, const std::string& model_name, size_t engine,
                int64_t max_model_len, const CacheInfo& cache);
  ~EngineMetrics();

  void step(const StepReport& report);
  // Records a submitted request. max_tokens: 0: limited only by the context length.
  void entered(int64_t n, int64_t max_tokens);
  void prompt_computed(int64_t tokens, int64_t cached);  // once per prompt
  void first_token(double seconds);                      // since the request arrived
  void next_token(double seconds);                       // since the previous token
  void generated(int64_t tokens);
  void finished(const FinishedSequence& sequence);
  // Records that all sequences of a prompt have ended. longest: generated tokens of the longest
  // one.
  void prompt_finished(int64_t longest);

  // adapters() and set() must be called by one thread at a time. running, waiting: comma-separated
  // adapter names of sequences; most: number of adapter slots.
  void adapters(int64_t most, const std::string& running, const std::string& waiting);
  void set(const EngineCounts& counts);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace trireme
