// OpenAI's API over engines: what each route of the server does.
//
// Routes and what is only looked up are in service.cpp, requests that engines compute in service_generation.cpp, their
// prompts in service_prompts.cpp, and what an admin changes in service_weights.cpp.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/text/conversation.h"
#include "serving/api/requests.h"
#include "serving/api/small_bodies.h"
#include "serving/engine/replicas.h"
#include "serving/http/admission.h"
#include "serving/http/generation_task.h"
#include "serving/http/routes.h"
#include "serving/http/served_ids.h"
#include "serving/http/server.h"
#include "serving/http/serving_metrics.h"
#include "serving/http/weight_reload.h"

namespace trireme {

struct ServiceConfig {
  // All of them the same model, under different ids, or with one of its adapters; at least one.
  std::vector<ModelCard> models;
  std::string version, fingerprint;
  int64_t max_model_len = 0;
  int64_t embedding_size = 0;    // numbers of the model's embeddings
  std::vector<int32_t> end_ids;  // that end the model's texts
  // Whether the model has seen texts with what its tokenizer puts around them. Where it has not, add_special_tokens
  // of a request changes nothing for texts.
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

class Service {
 public:
  // All must outlive this object; chat may be nullptr: chats are refused then.
  Service(Replicas& engines, const Tokenizer& tokenizer, const ChatTemplate* chat,
          ServingMetrics& metrics, ServiceConfig config);

  // The table of what is answered and who may ask. This object must outlive the server.
  Routes routes();
  // For HttpServer's on_request.
  void count(const RequestSummary& summary);
  Admission& admission() { return admission_; }
  GrammarCompiler::Counts grammars() const { return compiler_.counts(); }

 private:
  HttpAnswer completions(HttpRequest& request);
  HttpAnswer chat_completions(HttpRequest& request);
  HttpAnswer embeddings(HttpRequest& request);
  HttpAnswer tokenize(HttpRequest& request);
  HttpAnswer detokenize(HttpRequest& request);
  std::shared_ptr<HeldBytes> held_for(const HttpRequest& request);
  HttpAnswer model(const HttpRequest& request) const;
  HttpAnswer ready() const;
  void add_generating_route(Routes& routes, const char* path,
                            HttpAnswer (Service::*handle)(HttpRequest&));
  void add_weights_routes(Routes& routes);
  std::string fingerprint() const;
  std::vector<ModelCard> models() const;
  ServedId find_model(const std::string& id) const;  // ApiError 404 where it is not served
  HttpAnswer load_adapter(HttpRequest& request);
  HttpAnswer unload_adapter(HttpRequest& request);
  std::string metrics_text() const;
  void check_engine() const;
  // Without most_tokens any number; a text that cannot have so few is refused before it is looked at.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                                   std::optional<int64_t> most_tokens = {}) const;
  std::vector<int32_t> encode_prompt(const Prompt& prompt, bool add_special,
                                     std::optional<int64_t> most_tokens = {},
                                     const char* param = "prompt") const;
  void check_bytes(std::string_view text, std::optional<int64_t> most_tokens,
                   const char* param) const;
  int64_t tokens_to_generate(const GenerationRequest& request, int64_t prompt) const;
  std::shared_ptr<TokenChoice> choice_of(const GenerationRequest& request) const;
  void use_tools(ChatRequest& request, struct ReplyForm& form) const;
  HttpAnswer generate(const HttpRequest& http, const GenerationRequest& request,
                      struct ReplyForm form, std::vector<std::vector<int32_t>> prompts,
                      std::unique_ptr<Admission::Place> place);
  std::unique_ptr<PendingReply> search_beams(const GenerationRequest& request, int64_t beams,
                                             struct GenerationWork work);
  void mention_unknown(const std::vector<std::string>& fields);

  Replicas& engines_;
  const Tokenizer& tokenizer_;
  ServingMetrics& metrics_;
  ServiceConfig config_;
  ServedIds ids_;
  std::unique_ptr<ConversationWriter> writer_;
  Admission admission_;
  TenantBudgets answers_;
  GrammarCompiler compiler_;
  std::unique_ptr<WeightReload> reload_;  // where weights can be replaced
  std::mutex mutex_;                      // of those below
  std::set<std::string> mentioned_;       // unknown fields that were logged
};

}  // namespace trireme
