#include "serving/http/service.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/core/utf8.h"
#include "engine/observe/log.h"
#include "serving/api/embeddings_reply.h"
#include "serving/api/generation_reply.h"
#include "serving/api/json_writer.h"
#include "serving/api/openapi.h"
#include "serving/http/beam_task.h"
#include "serving/http/embedding_task.h"

namespace trireme {
namespace {

constexpr int64_t kBytesPerToken = 4;  // a guess, for prompts that are not tokenized yet
constexpr size_t kMostMentioned = 1000;

uint64_t random_seed() {
  thread_local std::mt19937_64 source{(uint64_t{std::random_device{}()} << 32) |
                                      std::random_device{}()};
  return source();
}

HttpReply text_reply(std::string body, const char* type) {
  return {.body = std::move(body), .content_type = type};
}

HttpReply status_reply(const char* status) {
  std::string body;
  JsonWriter(body).begin_object().key("status").string(status).end_object();
  return {.body = std::move(body)};
}

std::string valid_utf8(std::string bytes) {
  std::string text = take_complete_utf8(bytes);
  return bytes.empty() ? text : text + "\xEF\xBF\xBD";
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

// What the texts must be; absent: anything.
std::optional<GrammarSource> grammar_of(const Constraint& constraint) {
  using From = Constraint::Kind;
  using To = GrammarSource::Kind;
  const auto source = [&](To kind) {
    return GrammarSource{kind, constraint.text, constraint.choices, constraint.tools};
  };
  switch (constraint.kind) {
    case From::kNone: return {};
    case From::kJsonObject: return source(To::kJsonObject);
    case From::kJsonSchema: return source(To::kJsonSchema);
    case From::kRegex: return source(To::kRegex);
    case From::kGrammar: return source(To::kGrammar);
    case From::kToolCalls: return source(To::kToolCalls);
    case From::kChoice: return source(To::kChoice);
  }
  return {};
}

// Of beginnings that requests may share: those of the same key and cache_salt, and of the same adapter, whatever slot
// it has.
std::string salt_of(const ServedId& model, const std::string& tenant, const std::string& salt) {
  return concat(model.generation, ":", tenant, ":", salt);
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
      all_answers_(std::make_shared<ByteBudget>(config_.answers.all)),
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
  get("/openapi.json", Access::kUser, [document = openapi_document(config_.version)](HttpRequest&) {
    return HttpAnswer{{.body = document}};
  });
  get("/metrics", Access::kUser, [this](HttpRequest&) {
    return HttpAnswer{text_reply(metrics_text(), "text/plain; version=0.0.4; charset=utf-8")};
  });
  return routes;
}

void Service::add_weights_routes(Routes& routes) {
  routes.add({.method = "POST",
              .path = path_of(Endpoint::kWeights),
              .access = Access::kAdmin,
              .handle = [this](HttpRequest& http) {
                const WeightsRequest request = parse_weights(http.body, config_.requests);
                mention_unknown(request.unknown);
                HttpAnswer answer;
                answer.pending = reload_->begin(request);
                return answer;
              }});
  routes.add(
      {.method = "GET",
       .path = path_of(Endpoint::kWeights),
       .access = Access::kAdmin,
       .handle = [this](HttpRequest&) { return HttpAnswer{{.body = reload_->state_body()}}; },
       .is_quick = true});
  if (ids_.slots() == 0) return;
  routes.add({.method = "POST",
              .path = path_of(Endpoint::kLoadAdapter),
              .access = Access::kAdmin,
              .handle = [this](HttpRequest& http) { return load_adapter(http); }});
  routes.add({.method = "POST",
              .path = path_of(Endpoint::kUnloadAdapter),
              .access = Access::kAdmin,
              .handle = [this](HttpRequest& http) { return unload_adapter(http); }});
}

HttpAnswer Service::load_adapter(HttpRequest& http) {
  const AdapterRequest request = parse_load_adapter(http.body, config_.requests);
  mention_unknown(request.unknown);
  HttpAnswer answer;
  answer.pending = reload_->begin_adapter([this, request] {
    const int32_t slot = ids_.free_slot(request.name);
    reload_->load_adapter(slot, request.path);
    ids_.add({.id = request.name,
              .created = std::time(nullptr),
              .max_model_len = config_.max_model_len,
              .root = request.path,
              .parent = config_.models.front().id,
              .adapter = slot});
    log_info("adapter ", request.path, " is served as ", request.name);
    return text_reply(concat("Success: LoRA adapter '", request.name, "' added successfully."),
                      "text/plain; charset=utf-8");
  });
  return answer;
}

HttpAnswer Service::unload_adapter(HttpRequest& http) {
  const AdapterRequest request = parse_unload_adapter(http.body, config_.requests);
  mention_unknown(request.unknown);
  ids_.remove(request.name);
  log_info("adapter ", request.name, " is not served any more");
  return {text_reply(concat("Success: LoRA adapter '", request.name, "' removed successfully."),
                     "text/plain; charset=utf-8")};
}

std::string Service::metrics_text() const {
  const std::vector<EngineCounts> counts = engines_.counts();
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

// --- prompts --------------------------------------------------------------------------------------------

void Service::check_bytes(std::string_view text, std::optional<int64_t> most_tokens,
                          const char* param) const {
  const int64_t of_token = tokenizer_.most_bytes_of_id();
  if (of_token == 0 || !most_tokens || std::ssize(text) / of_token <= *most_tokens) return;
  throw ApiError(400,
                 concat("a text of ", text.size(), " bytes has more than ", *most_tokens,
                        " tokens, which is what it may have"),
                 param, "context_length_exceeded");
}

std::vector<int32_t> Service::encode_prompt(const Prompt& prompt, bool add_special,
                                            std::optional<int64_t> most_tokens,
                                            const char* param) const {
  if (!prompt.is_text) return prompt.tokens;
  check_bytes(prompt.text, most_tokens, param);
  return tokenizer_.encode(prompt.text, {.add_special = add_special && config_.adds_special});
}

std::vector<int32_t> Service::encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                                          std::optional<int64_t> most_tokens) const {
  if (writer_ == nullptr)
    throw ApiError(400, "this model has no chat template: use /v1/completions", "messages",
                   "no_chat_template");
  WrittenConversation written;
  try {
    written = writer_->write(variables);
  } catch (const InputError& error) {
    fail_field("messages", error.what());
  }
  check_bytes(written.text, most_tokens, "messages");
  return tokenizer_.encode(
      written.text, {.add_special = add_special, .parse_special = true, .breaks = written.breaks});
}

int64_t Service::tokens_to_generate(const GenerationRequest& request, int64_t prompt) const {
  const int64_t room = config_.max_model_len - prompt;
  const auto fail_length = [&](const char* param, const std::string& message) {
    throw ApiError(400, message, param, "context_length_exceeded");
  };
  if (prompt == 0) fail_field("prompt", "the prompt has no tokens");
  if (room < 1)
    fail_length("prompt", concat("the prompt has ", prompt,
                                 " tokens, and with one more it may have ", config_.max_model_len));
  const int64_t wanted = request.max_tokens.value_or(room);
  if (wanted > room)
    fail_length("max_tokens",
                concat("the prompt has ", prompt, " tokens: with ", wanted,
                       " to generate they are more than the model's ", config_.max_model_len));
  return std::max<int64_t>(wanted, 1);  // what an echo without text needs
}

std::shared_ptr<TokenChoice> Service::choice_of(const GenerationRequest& request) const {
  auto choice = std::make_shared<TokenChoice>();
  choice->sampling = {.temperature = request.temperature,
                      .top_k = std::max<int64_t>(request.top_k, 0),
                      .top_p = request.top_p,
                      .min_p = request.min_p,
                      .seed = request.seed ? static_cast<uint64_t>(*request.seed) : random_seed(),
                      .typical_p = request.typical_p};
  choice->repetition_penalty = request.repetition_penalty;
  choice->frequency_penalty = request.frequency_penalty;
  choice->presence_penalty = request.presence_penalty;
  choice->top_logprobs = request.top_logprobs;
  choice->min_tokens = request.min_tokens;
  choice->end_ids = request.stop_token_ids;
  if (!request.ignore_eos)
    choice->end_ids.insert(choice->end_ids.end(), config_.end_ids.begin(), config_.end_ids.end());
  choice->logit_bias = request.logit_bias;
  for (const std::string& word : request.bad_words) {
    // As it is at the beginning of a text, and behind a space.
    for (const std::string& spelled : {word, concat(" ", word)})
      if (std::vector<int32_t> ids = tokenizer_.encode(spelled); !ids.empty())
        choice->bad_words.push_back(std::move(ids));
  }
  return choice;
}

// --- requests -------------------------------------------------------------------------------------------

HttpAnswer Service::generate(const HttpRequest& http, const GenerationRequest& request,
                             ReplyForm form, std::vector<std::vector<int32_t>> prompts,
                             std::unique_ptr<Admission::Place> place) {
  int64_t tokens = 0;
  for (const std::vector<int32_t>& prompt : prompts) tokens += std::ssize(prompt);
  place->set_prompt_tokens(tokens);
  // One for all choices, however large it is.
  const std::shared_ptr<TokenChoice> choice = choice_of(request);
  choice->prompt_logprobs = request.prompt_logprobs;
  if (form.echo) choice->prompt_logprobs = std::max(choice->prompt_logprobs, request.top_logprobs);
  if (form.told > 0) choice->top_logprobs = std::max(choice->top_logprobs, 0);
  const int64_t beams = form.n;
  if (request.beam_search) {
    form.n = request.n;
    form.told = 0;
  }
  const ServedId model = find_model(request.model);
  const auto n = static_cast<size_t>(form.n);
  std::vector<SequenceRequest> sequences;
  sequences.reserve(prompts.size());
  for (const std::vector<int32_t>& prompt : prompts)
    sequences.push_back({.prompt = prompt,
                         .choice = choice,
                         .max_tokens = tokens_to_generate(request, std::ssize(prompt)),
                         .priority = static_cast<int>(request.priority),
                         .salt = salt_of(model, http.tenant, request.cache_salt),
                         .draw = sequences.size() * n,
                         .adapter = model.card.adapter});
  const bool stream = form.stream;
  ReplyIdentity identity{.id = concat(form.chat ? "chatcmpl-" : "cmpl-", http.id),
                         .created = std::time(nullptr),
                         .model = request.model,
                         .fingerprint = fingerprint()};
  GenerationWork work{.prompts = std::move(sequences),
                      .n = n,
                      .reply = GenerationReply(std::move(identity), std::move(form), tokenizer_,
                                               std::move(prompts)),
                      .asked = {request.n, request.max_tokens.value_or(0)},
                      .stream = stream,
                      .place = std::move(place),
                      .arrival = http.arrival,
                      .limits = config_.answers,
                      .all_answers = all_answers_,
                      .grammar = grammar_of(request.constraint),
                      .grammar_param = request.constraint.param,
                      .compiler = &compiler_,
                      .lease = model.lease};
  HttpAnswer answer;
  if (request.beam_search)
    answer.pending = search_beams(request, beams, std::move(work));
  else
    answer.pending = std::make_unique<GenerationTask>(engines_, metrics_, std::move(work));
  return answer;
}

std::unique_ptr<PendingReply> Service::search_beams(const GenerationRequest& request, int64_t beams,
                                                    GenerationWork work) {
  BeamSearchConfig search{.width = beams,
                          .min_tokens = request.min_tokens,
                          .length_penalty = request.length_penalty,
                          .end_ids = work.prompts.front().choice->end_ids,
                          .told = request.top_logprobs};
  BeamWork beam_work{.prompts = std::move(work.prompts),
                     .n = work.n,
                     .search = std::move(search),
                     .reply = std::move(work.reply),
                     .asked = work.asked,
                     .place = std::move(work.place),
                     .arrival = work.arrival,
                     .held = HeldBytes(work.limits.whole, work.limits.always, all_answers_),
                     .lease = std::move(work.lease)};
  return std::make_unique<BeamTask>(engines_, metrics_, std::move(beam_work));
}

HttpAnswer Service::completions(HttpRequest& http) {
  const CompletionRequest request = parse_completion(http.body, config_.requests);
  mention_unknown(request.unknown);
  (void)find_model(request.model);
  size_t guess = 0;
  for (const Prompt& prompt : request.prompts)
    guess += prompt.is_text ? prompt.text.size() / kBytesPerToken : prompt.tokens.size();
  const int64_t each = std::max(request.n, request.best_of);
  auto place = admission_.enter(http.tenant, std::ssize(request.prompts) * each,
                                static_cast<int64_t>(guess));
  std::vector<std::vector<int32_t>> prompts;
  prompts.reserve(request.prompts.size());
  for (const Prompt& prompt : request.prompts)
    prompts.push_back(encode_prompt(prompt, request.add_special, config_.max_model_len - 1));
  return generate(http, request, form_of(request), std::move(prompts), std::move(place));
}

HttpAnswer Service::chat_completions(HttpRequest& http) {
  ChatRequest request = parse_chat(http.body, config_.requests);
  mention_unknown(request.unknown);
  (void)find_model(request.model);
  ReplyForm form = form_of(request);
  if (request.tool_choice != ToolChoice::kNone) use_tools(request, form);
  auto place = admission_.enter(http.tenant, request.n,
                                static_cast<int64_t>(http.body.size()) / kBytesPerToken);
  std::vector<std::vector<int32_t>> prompts = {
      encode_chat(*request.variables, request.add_special, config_.max_model_len - 1)};
  return generate(http, request, std::move(form), std::move(prompts), std::move(place));
}

// What a model says of tools is found in its text. Where it must call one, a grammar sees to it; where it need not, what
// the text must be without calls is one of two ways.
void Service::use_tools(ChatRequest& request, ReplyForm& form) const {
  if (config_.tools == ToolFormat::kNone)
    fail_unavailable("tools",
                     "how this model calls tools is not known: its chat template has no form that "
                     "is; the server's --tool-call-parser names one");
  const nlohmann::ordered_json& tools = request.variables->at("tools");
  nlohmann::ordered_json called = nlohmann::ordered_json::array();
  form.tools.format = config_.tools;
  form.tools.parallel = request.parallel_tool_calls;
  for (const auto& tool : tools) {
    const auto& function = tool.at("function");
    form.tools.names.push_back(function.at("name").get<std::string>());
    if (!request.tool_name.empty() && request.tool_name != form.tools.names.back()) continue;
    nlohmann::ordered_json one = {{"name", form.tools.names.back()}};
    if (function.contains("parameters")) one["parameters"] = function["parameters"];
    called.push_back(std::move(one));
  }
  const bool automatic = request.tool_choice == ToolChoice::kAuto;
  if (automatic && request.constraint.kind == Constraint::Kind::kNone) {
    // A marker that is a token of its own must be seen to be found.
    for (const std::string_view marker :
         {std::string_view(tool_marker(config_.tools)), tool_end(config_.tools)})
      form.text.shown.push_back(tokenizer_.find(marker));
    return;
  }
  const bool several = request.parallel_tool_calls && request.tool_choice != ToolChoice::kNamed;
  const nlohmann::ordered_json source = {
      {"format", text(config_.tools)}, {"parallel", several}, {"tools", std::move(called)}};
  form.tools.either = automatic;
  form.tools.only_calls = !automatic;
  if (automatic)
    request.constraint.tools = source.dump();
  else
    request.constraint = {
        .kind = Constraint::Kind::kToolCalls, .text = source.dump(), .param = "tools"};
}

HttpAnswer Service::embeddings(HttpRequest& http) {
  const EmbeddingsRequest request = parse_embeddings(http.body, config_.requests);
  mention_unknown(request.unknown);
  const ServedId model = find_model(request.model);
  const int64_t size = config_.embedding_size;
  if (request.dimensions.value_or(1) > size)
    fail_field("dimensions", "dimensions must be at most ", size,
               ", which the model's embeddings have");
  const int64_t told = request.dimensions.value_or(size);
  const auto most = static_cast<size_t>(config_.admission.running);
  const AnswerLimits& limits = config_.answers;
  EmbeddingWork work{.texts = {},
                     .model = request.model,
                     .dimensions = static_cast<size_t>(told),
                     .base64 = request.base64,
                     .at_a_time = std::min(request.inputs.size(), most),
                     .held = HeldBytes(limits.whole, limits.always, all_answers_),
                     .lease = model.lease};
  if (!work.held.set(embeddings_bytes(std::ssize(request.inputs), told, request.base64)))
    throw size_error(work.held, "ask for fewer texts or dimensions at once, or for base64",
                     "input");
  work.place = admission_.enter(http.tenant, static_cast<int64_t>(work.at_a_time),
                                static_cast<int64_t>(http.body.size()) / kBytesPerToken);
  const auto choice = std::make_shared<const TokenChoice>();
  for (const Prompt& input : request.inputs) {
    std::vector<int32_t> tokens = encode_prompt(input, true, config_.max_model_len, "input");
    if (tokens.empty()) fail_field("input", "a text has no tokens");
    if (std::ssize(tokens) > config_.max_model_len)
      throw ApiError(400,
                     concat("a text has ", tokens.size(), " tokens, at most ",
                            config_.max_model_len, " are allowed"),
                     "input", "context_length_exceeded");
    work.texts.push_back({.prompt = std::move(tokens),
                          .choice = choice,
                          .salt = salt_of(model, http.tenant, ""),
                          .adapter = model.card.adapter,
                          .embeds = true});
  }
  return {{}, std::make_unique<EmbeddingTask>(engines_, metrics_, std::move(work))};
}

HttpAnswer Service::tokenize(HttpRequest& http) {
  const TokenizeRequest request = parse_tokenize(http.body, config_.requests);
  mention_unknown(request.unknown);
  if (!request.model.empty()) (void)find_model(request.model);
  const std::vector<int32_t> tokens =
      request.variables != nullptr ? encode_chat(*request.variables, request.add_special)
                                   : encode_prompt({.text = request.prompt}, request.add_special);
  std::vector<std::string> strings;
  if (request.token_strings)
    for (const int32_t token : tokens) strings.push_back(valid_utf8(tokenizer_.token(token)));
  return {{.body = tokenize_body(tokens, config_.max_model_len,
                                 request.token_strings ? &strings : nullptr)}};
}

HttpAnswer Service::detokenize(HttpRequest& http) {
  const DetokenizeRequest request = parse_detokenize(http.body, config_.requests);
  mention_unknown(request.unknown);
  if (!request.model.empty()) (void)find_model(request.model);
  return {{.body = detokenize_body(valid_utf8(tokenizer_.decode(request.tokens)))}};
}

}  // namespace trireme
