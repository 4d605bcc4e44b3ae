#include "serving/http/service/engine_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>

namespace trireme {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Labels = std::map<std::string, std::string>;

const Buckets kFirstToken = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                             0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                             20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const Buckets kInterToken = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                             0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const Buckets kLatency = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                          30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kIteration = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kHost = {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1};

// 1, 2, 5, 10, 20, 50 ... up to `most`.
Buckets one_two_five(int64_t most) {
  Buckets out;
  for (int64_t ten = 1; ten <= most; ten *= 10)
    for (const int64_t step : {1, 2, 5})
      if (ten * step <= most) out.push_back(static_cast<double>(ten * step));
  return out;
}

}  // namespace

const std::vector<double>& latency_buckets() { return kLatency; }

struct EngineMetrics::Series {
  Series(prometheus::Registry& into, const std::string& model_name, size_t engine)
      : registry(into), labels{{"model_name", model_name}, {"engine", std::to_string(engine)}} {}

  Counter& counter(const char* name, const char* help, const Labels& more = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(with(more));
  }
  Gauge& gauge(const char* name, const char* help, const Labels& more = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(with(more));
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }
  Counter& prompt_source(const char* source) {
    return counter("vllm:prompt_tokens_by_source_total",
                   "Prompt tokens by source: computed, or found in a cache.", {{"source", source}});
  }
  // Adds constant series that dashboards expect: this server never sleeps, and has no external or
  // multimodal caches.
  void add_what_is_not_there() {
    for (const std::string state : {"awake", "weights_offloaded", "discard_all"})
      gauge("vllm:engine_sleep_state",
            "1 for the engine's sleep state; this server is always awake.",
            {{"sleep_state", state}})
          .Set(state == "awake" ? 1 : 0);
    prompt_source("external_kv_transfer");
    for (const char* name :
         {"vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total",
          "vllm:mm_cache_queries_total", "vllm:mm_cache_hits_total"})
      counter(name, "Always 0: this server has no such cache.");
  }
  // Current values under the names of earlier versions.
  void add_old_names() {
    old_itl = &histogram("vllm:time_per_output_token_seconds",
                         "Old name of vllm:inter_token_latency_seconds.", kInterToken);
    old_usage = &gauge("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc.");
    gauge("vllm:num_requests_swapped", "Always 0: sequences are not swapped.");
    // The name in vLLM's documentation, and with the suffix that Prometheus's Python client adds.
    for (const std::string end : {"", "_total"}) {
      old_queries.push_back(&counter(("vllm:gpu_prefix_cache_queries" + end).c_str(),
                                     "Old name of vllm:prefix_cache_queries_total."));
      old_hits.push_back(&counter(("vllm:gpu_prefix_cache_hits" + end).c_str(),
                                  "Old name of vllm:prefix_cache_hits_total."));
    }
  }
  Labels with(Labels more) const {
    more.insert(labels.begin(), labels.end());
    return more;
  }
  // Updates a counter from a total that is counted elsewhere.
  static void raise(Counter& counter, int64_t to) {
    const double more = static_cast<double>(to) - counter.Value();
    if (more > 0) counter.Increment(more);
  }

  InferenceCost cost;  // per rank
  prometheus::Registry& registry;
  Labels labels;

  Gauge& running = gauge("vllm:num_requests_running", "Running sequences.");
  Gauge& waiting = gauge("vllm:num_requests_waiting", "Waiting sequences.");
  Gauge& waiting_capacity = gauge("vllm:num_requests_waiting_by_reason",
                                  "Waiting sequences by reason.", {{"reason", "capacity"}});
  Gauge& waiting_deferred = gauge("vllm:num_requests_waiting_by_reason",
                                  "Waiting sequences by reason.", {{"reason", "deferred"}});
  Gauge& cache_usage =
      gauge("vllm:kv_cache_usage_perc", "Fraction of the KV cache in use, 0 to 1.");
  Counter& preemptions = counter("vllm:num_preemptions_total",
                                 "Preemptions of running sequences, which are recomputed.");
  Counter& failed_steps =
      counter("trireme:failed_steps_total", "Failed steps, whose sequences ended with an error.");
  // nullptr without speculative decoding.
  Counter *drafts = nullptr, *draft_tokens = nullptr, *accepted = nullptr, *changes = nullptr;
  Gauge *speculates = nullptr, *speculation_gain = nullptr;
  Histogram* drafting = nullptr;
  Counter& queries =
      counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
  Counter& hits =
      counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  Counter& prompt_tokens =
      counter("vllm:prompt_tokens_total", "Prompt tokens, computed or found in the prefix cache.");
  Counter& cached_tokens =
      counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.");
  Counter& computed_tokens = prompt_source("local_compute");
  Counter& found_tokens = prompt_source("local_cache_hit");
  Counter& flops = counter("vllm:estimated_flops_per_gpu_total",
                           "FLOPs of matrix products and attention on one rank.");
  Counter& read_bytes = counter("vllm:estimated_read_bytes_per_gpu_total",
                                "Minimum bytes of weights and KV cache read by one rank.");
  Counter& write_bytes =
      counter("vllm:estimated_write_bytes_per_gpu_total", "Bytes of KV cache written by one rank.");
  Counter& generation_tokens = counter("vllm:generation_tokens_total", "Generated tokens.");
  Histogram& ttft = histogram("vllm:time_to_first_token_seconds",
                              "Seconds from a request's arrival to its first token.", kFirstToken);
  Histogram& itl = histogram("vllm:inter_token_latency_seconds",
                             "Seconds from one token of a sequence to the next.", kInterToken);
  Histogram& tpot = histogram(
      "vllm:request_time_per_output_token_seconds",
      "Decode time of a sequence in seconds, divided by its tokens after the first.", kInterToken);
  Histogram& e2e =
      histogram("vllm:e2e_request_latency_seconds",
                "Seconds from a request's arrival to the end of its sequence.", kLatency);
  Histogram& decode = histogram("vllm:request_decode_time_seconds",
                                "Seconds from a sequence's first token to its last.", kLatency);
  Histogram& queue = histogram("vllm:request_queue_time_seconds",
                               "Seconds that a sequence waits for its first step.", kLatency);
  Histogram& prefill =
      histogram("vllm:request_prefill_time_seconds",
                "Seconds from a sequence's first step to its first token.", kLatency);
  Histogram& inference =
      histogram("vllm:request_inference_time_seconds",
                "Seconds from a sequence's first step to its last token.", kLatency);
  Histogram& iteration = histogram("vllm:iteration_tokens_total",
                                   "Prompt tokens and generated tokens per step.", kIteration);
  Histogram& host = histogram(
      "trireme:step_host_seconds",
      "Seconds per step to schedule it, send it to the ranks and report its results.", kHost);
  Histogram& execute =
      histogram("trireme:step_execute_seconds", "Seconds per step in the model.", kInterToken);
  Histogram* request_prompt = nullptr;
  Histogram* request_computed = nullptr;
  Histogram* request_generation = nullptr;
  Histogram* request_max_generation = nullptr;
  Histogram* params_n = nullptr;
  Histogram* params_max_tokens = nullptr;
  std::map<std::string, Counter*> success;
  // nullptr unless CacheInfo::old_names.
  Histogram* old_itl = nullptr;
  Gauge* old_usage = nullptr;
  std::vector<Counter*> old_queries, old_hits;
  // nullptr without adapters. One series, whose labels change.
  prometheus::Family<Gauge>* adapter_info = nullptr;
  Gauge* adapters = nullptr;
};

EngineMetrics::EngineMetrics(prometheus::Registry& registry, const std::string& model_name,
                             size_t engine, int64_t max_model_len, const CacheInfo& cache)
    : series_(std::make_unique<Series>(registry, model_name, engine)) {
  Series& s = *series_;
  const double share = 1.0 / cache.ranks;
  s.cost = {.token_flops = cache.cost.token_flops * share,
            .key_flops = cache.cost.key_flops * share,
            .weight_bytes = cache.cost.weight_bytes * share,
            .cached_bytes = cache.cost.cached_bytes * share};
  const Buckets lengths = one_two_five(max_model_len);
  s.request_prompt = &s.histogram("vllm:request_prompt_tokens", "Tokens per prompt.", lengths);
  s.request_computed =
      &s.histogram("vllm:request_prefill_kv_computed_tokens",
                   "Tokens per prompt that were not in the prefix cache.", lengths);
  s.request_generation =
      &s.histogram("vllm:request_generation_tokens", "Generated tokens per sequence.", lengths);
  s.request_max_generation =
      &s.histogram("vllm:request_max_num_generation_tokens",
                   "Generated tokens of the longest completion of a prompt.", lengths);
  s.params_n =
      &s.histogram("vllm:request_params_n", "Parameter n of requests.", {1, 2, 5, 10, 20, 50, 100});
  s.params_max_tokens =
      &s.histogram("vllm:request_params_max_tokens", "Parameter max_tokens of requests.", lengths);
  for (const char* reason : {"stop", "length", "abort", "error"})
    s.success[reason] = &s.counter("vllm:request_success_total", "Finished sequences by reason.",
                                   {{"finished_reason", reason}});
  s.gauge("vllm:cache_config_info", "Configuration of the KV cache.",
          {{"block_size", std::to_string(cache.block_size)},
           {"num_gpu_blocks", std::to_string(cache.blocks)},
           {"cache_dtype", cache.dtype},
           {"enable_prefix_caching", cache.prefix_caching ? "True" : "False"}})
      .Set(1);
  s.add_what_is_not_there();
  if (cache.old_names) s.add_old_names();
  if (cache.speculation) {
    s.drafts = &s.counter("vllm:spec_decode_num_drafts_total",
                          "Drafts, one for each sequence and step with draft tokens.");
    s.draft_tokens = &s.counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens.");
    s.accepted = &s.counter("vllm:spec_decode_num_accepted_tokens_total", "Accepted draft tokens.");
    s.drafting = &s.histogram("trireme:step_draft_seconds", "Seconds per step to draft tokens.",
                              kInterToken);
    s.speculates = &s.gauge("trireme:spec_decode_active",
                            "1: drafting is on; 0: it is off because it was slower.");
    s.speculation_gain = &s.gauge("trireme:spec_decode_gain",
                                  "Tokens per second with drafting over those without, as last "
                                  "measured; 0: not measured yet.");
    s.changes = &s.counter("trireme:spec_decode_changes_total",
                           "Times that a measurement switched drafting off or on.");
  }
}

EngineMetrics::~EngineMetrics() = default;

void EngineMetrics::step(const StepReport& report) {
  // As vLLM counts: prompt tokens plus generated tokens. The first token of a sequence is generated
  // in the step that completes its prompt.
  series_->iteration.Observe(static_cast<double>(report.tokens + report.first_tokens));
  series_->host.Observe(report.plan_seconds + report.report_seconds);
  series_->execute.Observe(report.execute_seconds);
  if (series_->drafting != nullptr) series_->drafting->Observe(report.draft_seconds);
  const InferenceCost& cost = series_->cost;
  const auto tokens = static_cast<double>(report.tokens);
  series_->flops.Increment(tokens * cost.token_flops +
                           static_cast<double>(report.keys) * cost.key_flops);
  series_->read_bytes.Increment(cost.weight_bytes +
                                static_cast<double>(report.cached_tokens) * cost.cached_bytes);
  series_->write_bytes.Increment(tokens * cost.cached_bytes);
}

void EngineMetrics::request_submitted(int64_t n, int64_t max_tokens) {
  series_->params_n->Observe(static_cast<double>(n));
  if (max_tokens > 0) series_->params_max_tokens->Observe(static_cast<double>(max_tokens));
}

void EngineMetrics::prompt_computed(int64_t tokens, int64_t cached) {
  series_->prompt_tokens.Increment(static_cast<double>(tokens));
  series_->cached_tokens.Increment(static_cast<double>(cached));
  series_->found_tokens.Increment(static_cast<double>(cached));
  series_->computed_tokens.Increment(static_cast<double>(tokens - cached));
  series_->request_prompt->Observe(static_cast<double>(tokens));
  series_->request_computed->Observe(static_cast<double>(tokens - cached));
}

void EngineMetrics::first_token(double seconds) { series_->ttft.Observe(seconds); }
void EngineMetrics::next_token(double seconds) {
  series_->itl.Observe(seconds);
  if (series_->old_itl != nullptr) series_->old_itl->Observe(seconds);
}

void EngineMetrics::generated(int64_t tokens) {
  series_->generation_tokens.Increment(static_cast<double>(tokens));
}

void EngineMetrics::finished(const FinishedSequence& sequence) {
  Series& s = *series_;
  s.success.at(sequence.reason)->Increment();
  s.request_generation->Observe(static_cast<double>(sequence.generated));
  s.e2e.Observe(sequence.seconds);
  s.decode.Observe(sequence.decode_seconds);
  if (sequence.generated > 1)
    s.tpot.Observe(sequence.decode_seconds / static_cast<double>(sequence.generated - 1));
  if (sequence.queue_seconds) s.queue.Observe(*sequence.queue_seconds);
  if (sequence.prefill_seconds) s.prefill.Observe(*sequence.prefill_seconds);
  if (sequence.inference_seconds) s.inference.Observe(*sequence.inference_seconds);
}

void EngineMetrics::prompt_finished(int64_t longest) {
  series_->request_max_generation->Observe(static_cast<double>(longest));
}

void EngineMetrics::adapters(int64_t most, const std::string& running, const std::string& waiting) {
  Series& s = *series_;
  if (s.adapter_info == nullptr)
    s.adapter_info =
        &prometheus::BuildGauge()
             .Name("vllm:lora_requests_info")
             .Help("Adapters of running and waiting sequences; value: Unix time in seconds.")
             .Register(s.registry);
  if (s.adapters != nullptr) s.adapter_info->Remove(s.adapters);
  s.adapters = &s.adapter_info->Add(s.with({{"max_lora", std::to_string(most)},
                                            {"running_lora_adapters", running},
                                            {"waiting_lora_adapters", waiting}}));
  s.adapters->SetToCurrentTime();
}

void EngineMetrics::set(const EngineCounts& counts) {
  Series& s = *series_;
  s.running.Set(static_cast<double>(counts.scheduler.running));
  s.waiting.Set(static_cast<double>(counts.scheduler.waiting));
  s.waiting_capacity.Set(static_cast<double>(counts.scheduler.waiting));
  s.waiting_deferred.Set(0);
  const double usage = counts.blocks == 0 ? 0
                                          : static_cast<double>(counts.used_blocks) /
                                                static_cast<double>(counts.blocks);
  s.cache_usage.Set(usage);
  if (s.old_usage != nullptr) s.old_usage->Set(usage);
  Series::raise(s.preemptions, counts.scheduler.preemptions);
  Series::raise(s.failed_steps, counts.scheduler.failed_steps);
  Series::raise(s.queries, counts.scheduler.prefix_queries);
  Series::raise(s.hits, counts.scheduler.prefix_hits);
  for (Counter* old : s.old_queries) Series::raise(*old, counts.scheduler.prefix_queries);
  for (Counter* old : s.old_hits) Series::raise(*old, counts.scheduler.prefix_hits);
  if (s.drafts != nullptr) {
    Series::raise(*s.drafts, counts.scheduler.drafts);
    Series::raise(*s.draft_tokens, counts.scheduler.draft_tokens);
    Series::raise(*s.accepted, counts.scheduler.accepted_tokens);
    Series::raise(*s.changes, counts.scheduler.speculation_changes);
    s.speculates->Set(counts.scheduler.speculates ? 1 : 0);
    s.speculation_gain->Set(counts.scheduler.speculation_gain);
  }
}

}  // namespace trireme
