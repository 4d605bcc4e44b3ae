#include "serving/http/service.h"

#include <algorithm>

#include "engine/core/utf8.h"
#include "engine/observe/log.h"
#include "serving/api/json_writer.h"
#include "serving/api/openapi.h"

namespace trireme {
namespace {

constexpr size_t kMostMentioned = 1000;
constexpr int64_t kMaxDetokenized = 1 << 17;  // ids, where max_model_len is less

HttpReply text_reply(std::string body, const char* type) {
  return {.body = std::move(body), .content_type = type};
}

HttpReply status_reply(const char* status) {
  std::string body;
  JsonWriter(body).begin_object().key("status").string(status).end_object();
  return {.body = std::move(body)};
}

std::string valid_utf8(std::string bytes) {
  return repaired_utf8(std::move(bytes), Utf8Repair::kMaximalPart);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                        hex_digit(text[i + 2]) >= 0;
    out +=
        escape ? static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return out;
}

[[noreturn]] void fail_no_model(const std::string& id) {
  throw ApiError(404, concat("The model `", id.substr(0, 200), "` does not exist"), "model",
                 "model_not_found");
}

}  // namespace

Service::Service(Replicas& engines, const Tokenizer& tokenizer, const ChatTemplate* chat,
                 ServingMetrics& metrics, ServiceConfig config)
    : engines_(engines),
      tokenizer_(tokenizer),
      metrics_(metrics),
      config_(std::move(config)),
      ids_(config_.models, config_.weights != nullptr ? config_.adapters : 0,
           [weights = config_.weights](int32_t slot) { weights->forget_adapter(slot); }),
      admission_(config_.admission),
      answers_(config_.answers.all, config_.answers.of_a_key),
      compiler_(std::make_shared<TokenTrie>(tokenizer,
                                            std::max(config_.model_ids, tokenizer.vocab_size())),
                config_.grammars) {
  if (config_.weights != nullptr)
    reload_ = std::make_unique<WeightReload>(engines, *config_.weights, metrics,
                                             config_.models.front().root);
  if (chat != nullptr) writer_ = std::make_unique<ConversationWriter>(*chat, tokenizer);
}

void Service::add_generating_route(Routes& routes, const char* path,
                                   HttpAnswer (Service::*handle)(HttpRequest&)) {
  routes.add({.method = "POST",
              .path = path,
              .access = Access::kUser,
              .handle = [this, handle](HttpRequest& request) { return (this->*handle)(request); },
              .admit =
                  [this](const RequestHead&, const std::string& tenant) {
                    check_engine();
                    admission_.check(tenant);
                  }});
}

Routes Service::routes() {
  Routes routes;
  const auto get = [&](const char* path, Access access,
                       std::function<HttpAnswer(HttpRequest&)> what) {
    // All of them look something up.
    routes.add({.method = "GET",
                .path = path,
                .access = access,
                .handle = std::move(what),
                .is_quick = true});
  };
  const auto post = [&](const char* path, HttpAnswer (Service::*handle)(HttpRequest&)) {
    routes.add({.method = "POST", .path = path, .handle = [this, handle](HttpRequest& request) {
                  return (this->*handle)(request);
                }});
  };
  add_generating_route(routes, "/v1/completions", &Service::completions);
  add_generating_route(routes, "/v1/chat/completions", &Service::chat_completions);
  add_generating_route(routes, "/v1/embeddings", &Service::embeddings);
  post("/tokenize", &Service::tokenize);
  post("/detokenize", &Service::detokenize);
  routes.add({.method = "POST",
              .path = "/reset_prefix_cache",
              .access = Access::kAdmin,
              .handle = [this](HttpRequest&) {
                engines_.forget_prefixes();
                return HttpAnswer{text_reply("", "text/plain")};
              }});
  if (reload_ != nullptr) add_weights_routes(routes);
  get("/v1/models", Access::kUser,
      [this](HttpRequest&) { return HttpAnswer{{.body = model_list_body(models())}}; });
  get("/v1/models/*", Access::kUser, [this](HttpRequest& request) { return model(request); });
  get("/health", Access::kOpen, [this](HttpRequest&) {
    check_engine();
    return HttpAnswer{text_reply("", "text/plain")};
  });
  get("/health/live", Access::kOpen, [](HttpRequest&) { return HttpAnswer{status_reply("live")}; });
  get("/health/ready", Access::kOpen, [this](HttpRequest&) { return ready(); });
  get("/version", Access::kUser, [this](HttpRequest&) {
    std::string body;
    JsonWriter(body).begin_object().key("version").string(config_.version).end_object();
    return HttpAnswer{{.body = std::move(body)}};
  });
  get("/openapi.json", Access::kUser,
      [document = std::make_shared<const std::string>(openapi_document(config_.version))](
          HttpRequest&) { return HttpAnswer{{.document = document}}; });
  get("/metrics", Access::kMetrics, [this](HttpRequest&) {
    return HttpAnswer{text_reply(metrics_text(), "text/plain; version=0.0.4; charset=utf-8")};
  });
  return routes;
}

std::string Service::metrics_text() const {
  const std::vector<EngineCounts> counts = engines_.counts();
  const GrammarCompiler::Counts grammars = compiler_.counts();
  metrics_.grammars(grammars.waiting, grammars.live_bytes, grammars.masks);
  return metrics_.text(counts, ids_.places(), [&](const std::vector<int32_t>& slots) {
    std::string out;
    for (const int32_t slot : slots) out += concat(out.empty() ? "" : ",", ids_.name_of(slot));
    return valid_utf8(out);
  });
}

void Service::count(const RequestSummary& summary) {
  // Whoever asks chooses the method: other names would be series without end.
  const bool usual =
      summary.method == "GET" || summary.method == "POST" || summary.method == "HEAD";
  metrics_.http_request(summary.handler, usual ? summary.method : "other", summary.status,
                        summary.seconds, summary.body_bytes);
}

// --- checks ---------------------------------------------------------------------------------------------

void Service::check_engine() const {
  if (!engines_.failure().empty())
    throw ApiError(503, "the engine has failed", "", "engine_failure").retry_after(1000);
}

HttpAnswer Service::ready() const {
  check_engine();
  admission_.check_open();
  return {status_reply("ready")};
}

HttpAnswer Service::model(const HttpRequest& request) const {
  const std::string id =
      percent_decoded(std::string_view(request.head.path).substr(sizeof("/v1/models/") - 1));
  for (const ModelCard& card : models())
    if (card.id == id) return {{.body = model_body(card)}};
  fail_no_model(id);
}

// Of the weights that answer requests that come now.
std::string Service::fingerprint() const {
  if (reload_ == nullptr) return config_.fingerprint;
  const WeightReload::State now = reload_->state();
  if (now.version == 1) return config_.fingerprint;
  return concat("trireme-", config_.version, "-step-", now.step, "-weights-", now.version);
}

std::vector<ModelCard> Service::models() const {
  std::vector<ModelCard> cards = ids_.cards();
  if (reload_ != nullptr)
    for (ModelCard& card : cards)
      if (card.parent.empty()) card.root = reload_->state().path;
  return cards;
}

ServedId Service::find_model(const std::string& id) const {
  if (const std::optional<ServedId> found = ids_.find(id)) return *found;
  fail_no_model(id);
}

void Service::mention_unknown(const std::vector<std::string>& fields) {
  if (fields.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const std::string& field : fields) {
    if (mentioned_.size() >= kMostMentioned || !mentioned_.insert(field).second) continue;
    std::string quoted;
    JsonWriter(quoted).string(valid_utf8(field));
    log_warning("requests have a field ", quoted, " that nothing is known of: it is ignored");
  }
}

HttpAnswer Service::tokenize(HttpRequest& http) {
  const TokenizeRequest request = parse_tokenize(http.body, config_.requests);
  mention_unknown(request.unknown);
  if (!request.model.empty()) (void)find_model(request.model);
  const std::vector<int32_t> tokens =
      request.variables != nullptr ? encode_chat(*request.variables, request.add_special)
                                   : encode_prompt({.text = request.prompt}, request.add_special);
  const std::function<std::string(int32_t)> spelling = [this](int32_t token) {
    return valid_utf8(tokenizer_.token(token));
  };
  const auto held = held_for(http);
  constexpr int64_t kBytesOfId = 8;  // with its comma
  int64_t bytes = kBytesOfId * std::ssize(tokens);
  if (request.token_strings)
    for (const int32_t token : tokens) bytes += std::ssize(spelling(token)) + 3;  // "",
  const auto hold = [&](int64_t so_many) {
    if (!held->set(so_many)) throw size_error(*held, "send less text at a time", "prompt");
  };
  hold(bytes);
  std::string body =
      tokenize_body(tokens, config_.max_model_len, request.token_strings ? spelling : nullptr);
  body.shrink_to_fit();
  hold(std::ssize(body));
  return {{.body = std::move(body), .held = held}};
}

HttpAnswer Service::detokenize(HttpRequest& http) {
  const DetokenizeRequest request = parse_detokenize(http.body, config_.requests);
  mention_unknown(request.unknown);
  if (!request.model.empty()) (void)find_model(request.model);
  const int64_t most = std::max(config_.max_model_len, kMaxDetokenized);
  if (std::ssize(request.tokens) > most)
    fail_field("tokens", "tokens has ", request.tokens.size(), " entries, at most ", most,
               " are allowed");
  // A token of a few bytes may stand for hundreds: counted before the text is made.
  int64_t bytes = 0;
  for (const int32_t token : request.tokens) bytes += std::ssize(tokenizer_.token(token));
  const auto held = held_for(http);
  const auto hold = [&](int64_t so_many) {
    if (!held->set(so_many)) throw size_error(*held, "send fewer tokens at a time", "tokens");
  };
  hold(bytes);
  std::string body = detokenize_body(tokenizer_.decode(request.tokens));
  body.shrink_to_fit();
  hold(std::ssize(body));
  return {{.body = std::move(body), .held = held}};
}

std::shared_ptr<HeldBytes> Service::held_for(const HttpRequest& request) {
  const AnswerLimits& limits = config_.answers;
  return std::make_shared<HeldBytes>(limits.whole, limits.always, answers_.of(request.tenant));
}

}  // namespace trireme
