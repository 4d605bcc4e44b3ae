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

// KV cache of an engine, and other properties that its metrics need.
struct CacheInfo {
  int64_t block_size = 0, blocks = 0;  // tokens per KV block; number of KV blocks
  std::string dtype = {};              // of keys and values, as label
  bool prefix_caching = true;
  bool speculation = false;  // exports the metrics of speculative decoding
  bool old_names = false;    // exports names of earlier vLLM versions too
  InferenceCost cost = {};   // all ranks of the engine together; metrics have the cost per rank
  int ranks = 1;             // of the engine
};

// Summary of a sequence that has ended.
struct FinishedSequence {
  const char* reason = "";    // stop, length, abort or error
  int64_t generated = 0;      // tokens
  double seconds = 0;         // from the arrival of the request to the end of the sequence
  double decode_seconds = 0;  // from the first token to the last
  // Seconds from submission to the first step, from the first step to the first token, and from the
  // first step to the last token. nullopt for phases that it has not reached.
  std::optional<double> queue_seconds = {}, prefill_seconds = {}, inference_seconds = {};
};

// Histogram buckets for durations of whole requests: upper bounds in seconds, ascending.
const std::vector<double>& latency_buckets();

class EngineMetrics {
 public:
  // The registry must outlive this object.
  EngineMetrics(prometheus::Registry& registry, const std::string& model_name, size_t engine,
                int64_t max_model_len, const CacheInfo& cache);
  ~EngineMetrics();

  void step(const StepReport& report);
  // Records a submitted request. max_tokens: 0: limited only by the context length.
  void request_submitted(int64_t n, int64_t max_tokens);
  // Records a computed prompt, once. tokens: all of the prompt; cached: those of them found in the
  // prefix cache.
  void prompt_computed(int64_t tokens, int64_t cached);
  void first_token(double seconds);  // since the request arrived
  void next_token(double seconds);   // since the previous output, once for the tokens of one step
  void generated(int64_t tokens);    // number of new tokens
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
