#include "serving/http/service/service_context.h"

#include <algorithm>

#include "engine/core/utf8.h"
#include "engine/observe/log.h"
#include "serving/api/json_writer.h"
#include "serving/api/openapi.h"

namespace trireme {
namespace {

constexpr size_t kMaxUnknownFields = 1000;  // that are logged
constexpr size_t kMaxNameBytes = 64;

}  // namespace

void fail_no_model(const std::string& id) {
  throw ApiError(404, concat("The model `", id.substr(0, 200), "` does not exist"), "model",
                 "model_not_found");
}

std::string valid_utf8(std::string bytes) {
  return repaired_utf8(std::move(bytes), Utf8Repair::kMaximalPart);
}

ServiceContext::ServiceContext(Replicas& replicas, const Tokenizer& tokens,
                               const ChatTemplate* chat, ServingMetrics& counters,
                               ServiceConfig options)
    : engines(replicas),
      tokenizer(tokens),
      metrics(counters),
      config(std::move(options)),
      ids(config.models, config.weights != nullptr ? config.adapters : 0,
          [weights = config.weights](int32_t slot) { weights->forget_adapter(slot); }),
      prompts(tokenizer, chat, config.adds_special),
      admission(config.admission),
      responses(config.responses.all, config.responses.of_a_key),
      compiler(std::make_shared<TokenTrie>(
                   tokenizer, std::max(config.output_vocab_size, tokenizer.vocab_size())),
               config.grammars),
      openapi(std::make_shared<const std::string>(openapi_document(config.version))) {
  if (config.weights != nullptr)
    reload = std::make_unique<WeightReload>(engines, *config.weights, metrics,
                                            config.models.front().root);
}

std::string ServiceContext::fingerprint() const {
  if (reload == nullptr) return config.fingerprint;
  const WeightReload::State now = reload->state();
  if (now.version == 1) return config.fingerprint;
  return concat("trireme-", config.version, "-step-", now.step, "-weights-", now.version);
}

std::vector<ModelCard> ServiceContext::models() const {
  std::vector<ModelCard> cards = ids.cards();
  if (reload != nullptr)
    for (ModelCard& card : cards)
      if (card.parent.empty()) card.root = reload->state().path;
  return cards;
}

ServedId ServiceContext::find_model(const std::string& id) const {
  if (const std::optional<ServedId> found = ids.find(id)) return *found;
  fail_no_model(id);
}

void ServiceContext::check_engine() const {
  if (!engines.failure().empty())
    throw ApiError(503, "the engine has failed", "", "engine_failure").retry_after(1000);
}

std::string ServiceContext::metrics_text() {
  const std::vector<EngineCounts> counts = engines.counts();
  const GrammarCompiler::Counts grammars = compiler.counts();
  metrics.grammars(grammars.waiting, grammars.live_bytes, grammars.masks);
  return metrics.text(counts, ids.max_adapters(), [&](const std::vector<int32_t>& slots) {
    std::string out;
    for (const int32_t slot : slots) out += concat(out.empty() ? "" : ",", ids.name_of(slot));
    return valid_utf8(out);
  });
}

void ServiceContext::warn_unknown_fields(const std::vector<std::string>& fields) {
  if (fields.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const std::string& field : fields) {
    if (unknown_fields_.size() >= kMaxUnknownFields || !unknown_fields_.insert(field).second)
      continue;
    std::string quoted;
    JsonWriter(quoted).string(valid_utf8(field));
    log_warning("ignoring unknown request field ", quoted);
  }
}

std::vector<int32_t> ServiceContext::encode_chat(const nlohmann::ordered_json& variables,
                                                 bool add_special, std::string_view request,
                                                 std::optional<int64_t> max_tokens) {
  PromptEncoder::Chat chat = prompts.encode_chat(variables, add_special, max_tokens);
  if (chat.unread_members.empty()) return std::move(chat.tokens);
  const std::lock_guard lock(mutex_);
  for (const std::string& member : chat.unread_members) {
    const std::string name = member.substr(0, kMaxNameBytes);
    if (unread_members_.size() >= kMaxUnknownFields || !unread_members_.insert(name).second)
      continue;
    std::string quoted;
    JsonWriter(quoted).string(valid_utf8(name));
    log_warning("request ", request, ": a message has text in ", quoted,
                ", which the chat template does not read: the model does not see it");
  }
  return std::move(chat.tokens);
}

std::shared_ptr<HeldBytes> ServiceContext::held_for(const HttpRequest& request) {
  const ResponseLimits& limits = config.responses;
  return std::make_shared<HeldBytes>(limits.whole, limits.always, responses.of(request.tenant));
}

}  // namespace trireme
