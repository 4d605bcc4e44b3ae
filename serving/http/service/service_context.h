// State shared by all endpoints: engines, tokenizer, models, limits and counters.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/requests.h"
#include "serving/api/small_bodies.h"
#include "serving/engine/replicas.h"
#include "serving/http/service/admission.h"
#include "serving/http/service/generation_task.h"
#include "serving/http/service/prompt_encoder.h"
#include "serving/http/service/served_ids.h"
#include "serving/http/service/serving_metrics.h"
#include "serving/http/service/weight_reload.h"

namespace trireme {

struct ServiceConfig {
  // At least one: the same model under different ids, or with one of its adapters.
  std::vector<ModelCard> models;
  std::string version, fingerprint;    // of the server; of the weights served from the start
  int64_t max_model_len = 0;           // maximum tokens of a prompt and its completion together
  int64_t embedding_size = 0;          // dimensions of the model's embeddings
  std::vector<int32_t> eos_token_ids;  // EOS token ids of the model
  // True if the model was trained with the special tokens that its tokenizer adds around texts. If
  // false, the field add_special_tokens has no effect on texts.
  bool adds_special = true;
  RequestLimits requests;
  AdmissionLimits admission;
  ResponseLimits responses;
  GrammarCompilerConfig grammars = {};
  ToolFormat tools = ToolFormat::kNone;  // how the model writes tool calls
  int64_t output_vocab_size =
      0;  // rows of the model's output; if smaller, the tokenizer's vocab size
  // Weights that an admin may replace; nullptr: none. Must outlive the service.
  ModelWeights* weights = nullptr;
  // Slots for adapters loaded at run time; 0, or without `weights`: none can be loaded.
  int64_t adapters = 0;
};

// Handlers run on several threads in parallel, so all members are thread-safe.
struct ServiceContext {
  // All must outlive this object. chat: nullptr: chats are rejected.
  ServiceContext(Replicas& replicas, const Tokenizer& tokens, const ChatTemplate* chat,
                 ServingMetrics& counters, ServiceConfig options);

  // Parses the JSON body of a request. Logs unknown fields, each name once, at most 1000 names.
  template <class Request>
  Request read(Request (*parse)(std::string_view, const RequestLimits&), std::string_view body) {
    Request request = parse(body, config.requests);
    warn_unknown_fields(request.unknown);
    return request;
  }
  // PromptEncoder::encode_chat(). Logs the unread members, each name once, at most 1000 names.
  // request: its id, for the log.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                                   std::string_view request,
                                   std::optional<int64_t> max_tokens = {});
  ServedId find_model(const std::string& id) const;  // ApiError 404 if it is not served
  std::vector<ModelCard> models() const;  // all served ids; `root`: path of the current weights
  std::string fingerprint() const;        // of the weights that new requests use
  void check_engine() const;              // ApiError 503 when `engines` have failed
  // Share of the response budgets for the body of this request's response; initially 0 bytes.
  std::shared_ptr<HeldBytes> held_for(const HttpRequest& request);
  std::string metrics_text();  // Prometheus text format

  Replicas& engines;
  const Tokenizer& tokenizer;
  ServingMetrics& metrics;
  ServiceConfig config;
  ServedIds ids;
  PromptEncoder prompts;
  Admission admission;
  TenantBudgets responses;
  GrammarCompiler compiler;
  const std::shared_ptr<const std::string> openapi;  // document of the API
  std::unique_ptr<WeightReload> reload;              // nullptr: weights cannot be replaced

 private:
  void warn_unknown_fields(const std::vector<std::string>& fields);
  std::mutex mutex_;
  std::set<std::string> unknown_fields_;  // logged already
  std::set<std::string> unread_members_;  // logged already
};

// Throws ApiError 404, code model_not_found.
[[noreturn]] void fail_no_model(const std::string& id);
// Returns `bytes` with U+FFFD for invalid UTF-8.
std::string valid_utf8(std::string bytes);

}  // namespace trireme
