// State that all endpoints share: engines, tokenizer, models, limits and counters.
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
  // All of them the same model, under different ids, or with one of its adapters; at least one.
  std::vector<ModelCard> models;
  std::string version, fingerprint;
  int64_t max_model_len = 0;
  int64_t embedding_size = 0;    // numbers of the model's embeddings
  std::vector<int32_t> end_ids;  // that end the model's texts
  // Whether the model has seen texts with what its tokenizer puts around them. Where it has not,
  // add_special_tokens of a request changes nothing for texts.
  bool adds_special = true;
  RequestLimits requests;
  AdmissionLimits admission;
  AnswerLimits answers;
  GrammarCompilerConfig grammars = {};
  ToolFormat tools = ToolFormat::kNone;  // how the model writes calls of tools
  int64_t model_ids = 0;  // rows of the model's output; 0: as many as the tokenizer's ids
  // What may be replaced by an admin; nullptr: nothing. Outlives the service.
  ModelWeights* weights = nullptr;
  int64_t adapters = 0;  // that there is room for; 0: none can come
};

// Handlers run on several threads at a time; members are safe for that.
struct ServiceContext {
  // All must outlive this object; chat may be nullptr: chats are refused then.
  ServiceContext(Replicas& replicas, const Tokenizer& tokens, const ChatTemplate* chat,
                 ServingMetrics& counters, ServiceConfig options);

  // A request from its JSON body; logs each unknown field once.
  template <class Request>
  Request read(Request (*parse)(std::string_view, const RequestLimits&), std::string_view body) {
    Request request = parse(body, config.requests);
    warn_unknown_fields(request.unknown);
    return request;
  }
  // PromptEncoder::encode_chat(); logs each member of messages that the template did not read once,
  // with the id of the request.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                                   std::string_view request,
                                   std::optional<int64_t> max_tokens = {});
  ServedId find_model(const std::string& id) const;  // ApiError 404 where it is not served
  std::vector<ModelCard> models() const;
  std::string fingerprint() const;  // of the weights that new requests get
  void check_engine() const;        // ApiError 503 where it has failed
  std::shared_ptr<HeldBytes> held_for(const HttpRequest& request);
  std::string metrics_text();

  Replicas& engines;
  const Tokenizer& tokenizer;
  ServingMetrics& metrics;
  ServiceConfig config;
  ServedIds ids;
  PromptEncoder prompts;
  Admission admission;
  TenantBudgets answers;
  GrammarCompiler compiler;
  const std::shared_ptr<const std::string> openapi;  // the document
  std::unique_ptr<WeightReload> reload;              // nullptr: weights cannot be replaced

 private:
  void warn_unknown_fields(const std::vector<std::string>& fields);
  std::mutex mutex_;
  std::set<std::string> unknown_fields_;  // that were logged
  std::set<std::string> unread_members_;  // likewise
};

// ApiError 404, code model_not_found.
[[noreturn]] void fail_no_model(const std::string& id);
// Bytes as UTF-8, invalid ones replaced.
std::string valid_utf8(std::string bytes);

}  // namespace trireme
