// The requests of Service that engines compute: completions, chats and embeddings.
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "serving/api/embeddings_reply.h"
#include "serving/api/field_table.h"
#include "serving/api/generation_reply.h"
#include "serving/http/beam_task.h"
#include "serving/http/embedding_task.h"
#include "serving/http/service.h"

namespace trireme {
namespace {

constexpr int64_t kBytesPerToken = 4;  // a guess, for prompts that are not tokenized yet

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

}  // namespace

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
                         .draw = draw_of(sequences.size(), 0),
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
                      .all_answers = answers_.of(http.tenant),
                      .grammar = grammar_of(request.constraint),
                      .grammar_param = request.constraint.param,
                      .tenant = http.tenant,
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
                     .held = HeldBytes(work.limits.whole, work.limits.always, work.all_answers),
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
    prompts.push_back(encode_prompt(prompt, request.add_special, config_.max_model_len));
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

// Calls of tools are found in the model's text. Where it must call one, or a strict one, a grammar
// sees to it; where it need not, and the request has a constraint, the text is what that asks for,
// or calls.
void Service::use_tools(ChatRequest& request, ReplyForm& form) const {
  if (config_.tools == ToolFormat::kNone)
    fail_unavailable("tools",
                     "how this model calls tools is not known: its chat template has no form that "
                     "is; the server's --tool-call-parser names one");
  const bool automatic = request.tool_choice == ToolChoice::kAuto;
  const bool constrained = request.constraint.kind != Constraint::Kind::kNone;
  const bool free = automatic && !constrained;
  form.tools.format = config_.tools;
  form.tools.parallel = request.parallel_tool_calls;
  nlohmann::ordered_json called = nlohmann::ordered_json::array();
  for (const auto& tool : request.variables->at("tools")) {
    const auto& function = tool.at("function");
    const auto name = function.at("name").get<std::string>();
    form.tools.names.push_back(name);
    if (!request.tool_name.empty() && request.tool_name != name) continue;
    nlohmann::ordered_json one = {{"name", name}};
    if (free && !request.strict_tools.contains(name))
      one["parameters"] = {{"type", "object"}};  // any
    else if (function.contains("parameters"))
      one["parameters"] = function["parameters"];
    called.push_back(std::move(one));
  }
  if (free) {
    // A marker that is a token of its own must be seen to be found.
    for (const std::string_view marker :
         {std::string_view(tool_marker(config_.tools)), tool_end(config_.tools)})
      form.text.shown.push_back(tokenizer_.find(marker));
    if (request.strict_tools.empty()) return;
  }
  const bool several = request.parallel_tool_calls && request.tool_choice != ToolChoice::kNamed;
  const std::string source = json_text(nlohmann::ordered_json{{"format", text(config_.tools)},
                                                              {"parallel", several},
                                                              {"free", free},
                                                              {"tools", std::move(called)}});
  form.tools.either = automatic && constrained;
  form.tools.only_calls = !automatic;
  if (form.tools.either)
    request.constraint.tools = source;
  else
    request.constraint = {.kind = Constraint::Kind::kToolCalls, .text = source, .param = "tools"};
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
                     .held = HeldBytes(limits.whole, limits.always, answers_.of(http.tenant)),
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

}  // namespace trireme
