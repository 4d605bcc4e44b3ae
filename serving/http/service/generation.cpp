#include "serving/http/service/generation.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <random>

#include "serving/http/service/beam_task.h"

namespace trireme {
namespace {

uint64_t random_seed() {
  thread_local std::mt19937_64 source{(uint64_t{std::random_device{}()} << 32) |
                                      std::random_device{}()};
  return source();
}

// Grammar that the texts must match; absent: none.
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

// name: of the prompt, for errors.
int64_t tokens_to_generate(const ServiceContext& service, const GenerationRequest& request,
                           int64_t prompt, const std::string& name) {
  const int64_t room = service.config.max_model_len - prompt;
  const auto fail_length = [&](const char* param, const std::string& message) {
    throw ApiError(400, message, param, "context_length_exceeded");
  };
  if (prompt == 0) fail_field("prompt", name, " has no tokens");
  // An echo with max_tokens 0 computes the prompt alone: the token after it is neither stored in
  // the KV cache nor computed with, so it needs no room.
  const bool scores = request.max_tokens == 0 && room == 0;
  if (room < 1 && !scores)
    fail_length(
        "prompt",
        concat(name, " has ", prompt,
               " tokens, which leaves no room for a completion in the model's context length of ",
               service.config.max_model_len));
  const int64_t wanted = request.max_tokens.value_or(room);
  if (wanted > room)
    fail_length("max_tokens", concat(name, " has ", prompt, " tokens, and with ", wanted,
                                     " to generate it exceeds the model's context length of ",
                                     service.config.max_model_len));
  return std::max<int64_t>(wanted, 1);  // an echo with max_tokens 0 needs one
}

std::shared_ptr<SamplingParams> params_of(const ServiceContext& service,
                                          const GenerationRequest& request) {
  auto params = std::make_shared<SamplingParams>();
  params->sampling = {.temperature = request.temperature,
                      .top_k = std::max<int64_t>(request.top_k, 0),
                      .top_p = request.top_p,
                      .min_p = request.min_p,
                      .seed = request.seed ? static_cast<uint64_t>(*request.seed) : random_seed(),
                      .typical_p = request.typical_p};
  params->repetition_penalty = request.repetition_penalty;
  params->frequency_penalty = request.frequency_penalty;
  params->presence_penalty = request.presence_penalty;
  params->top_logprobs = request.top_logprobs;
  params->min_tokens = request.min_tokens;
  params->stop_token_ids = request.stop_token_ids;
  if (!request.ignore_eos)
    params->stop_token_ids.insert(params->stop_token_ids.end(),
                                  service.config.eos_token_ids.begin(),
                                  service.config.eos_token_ids.end());
  params->logit_bias = request.logit_bias;
  for (const std::string& word : request.bad_words) {
    // Both spellings: at the start of a text, and after a space.
    for (const std::string& spelled : {word, concat(" ", word)})
      if (std::vector<int32_t> ids = service.tokenizer.encode(spelled); !ids.empty())
        params->bad_words.push_back(std::move(ids));
  }
  return params;
}

std::unique_ptr<ResponseProducer> search_beams(ServiceContext& service,
                                               const GenerationRequest& request, int64_t beams,
                                               GenerationWork work) {
  BeamSearchConfig search{.width = beams,
                          .min_tokens = request.min_tokens,
                          .length_penalty = request.length_penalty,
                          .stop_token_ids = work.prompts.front().sampling_params->stop_token_ids,
                          .top_logprobs = request.top_logprobs};
  BeamWork beam_work{.prompts = std::move(work.prompts),
                     .n = work.n,
                     .search = std::move(search),
                     .response = std::move(work.response),
                     .requested = work.requested,
                     .ticket = std::move(work.ticket),
                     .arrival = work.arrival,
                     .held = HeldBytes(work.limits.whole, work.limits.always, work.response_budget),
                     .lease = std::move(work.lease)};
  return std::make_unique<BeamTask>(service.engines, service.metrics, std::move(beam_work));
}

}  // namespace

std::string salt_of(const ServedId& model, const std::string& tenant, const std::string& salt) {
  return concat(model.generation, ":", tenant, ":", salt);
}

HandlerResult generate(ServiceContext& service, const HttpRequest& http,
                       const GenerationRequest& request, ResponseForm form,
                       std::vector<std::vector<int32_t>> prompts,
                       std::unique_ptr<Admission::Ticket> ticket) {
  int64_t tokens = 0;
  for (const std::vector<int32_t>& prompt : prompts) tokens += std::ssize(prompt);
  ticket->set_prompt_tokens(tokens);
  // Shared by all choices, since it may be large.
  const std::shared_ptr<SamplingParams> params = params_of(service, request);
  params->prompt_logprobs = request.prompt_logprobs;
  if (form.echo) params->prompt_logprobs = std::max(params->prompt_logprobs, request.top_logprobs);
  if (form.returned > 0) params->top_logprobs = std::max(params->top_logprobs, 0);
  const int64_t beams = form.n;
  if (request.beam_search) {
    form.n = request.n;
    form.returned = 0;
  }
  const ServedId model = service.find_model(request.model);
  const auto n = static_cast<size_t>(form.n);
  std::vector<SequenceRequest> sequences;
  sequences.reserve(prompts.size());
  for (const std::vector<int32_t>& prompt : prompts) {
    const TextField field{.index = sequences.size(), .count = prompts.size()};
    const int64_t max_tokens =
        tokens_to_generate(service, request, std::ssize(prompt),
                           prompts.size() > 1 ? field.name() : std::string("the prompt"));
    sequences.push_back({.prompt = prompt,
                         .sampling_params = params,
                         .max_tokens = max_tokens,
                         .priority = static_cast<int>(request.priority),
                         .salt = salt_of(model, http.tenant, request.cache_salt),
                         .tenant = http.tenant,
                         .draw = draw_of(sequences.size(), 0),
                         .adapter = model.card.adapter});
  }
  const bool stream = form.stream;
  ResponseIdentity identity{.id = concat(form.chat ? "chatcmpl-" : "cmpl-", http.id),
                            .created = std::time(nullptr),
                            .model = request.model,
                            .fingerprint = service.fingerprint()};
  GenerationWork work{.prompts = std::move(sequences),
                      .n = n,
                      .response = GenerationResponse(std::move(identity), std::move(form),
                                                     service.tokenizer, std::move(prompts)),
                      .requested = {request.n, request.max_tokens.value_or(0)},
                      .stream = stream,
                      .ticket = std::move(ticket),
                      .arrival = http.arrival,
                      .limits = service.config.responses,
                      .response_budget = service.responses.of(http.tenant),
                      .grammar = grammar_of(request.constraint),
                      .grammar_param = request.constraint.param,
                      .tenant = http.tenant,
                      .compiler = &service.compiler,
                      .lease = model.lease};
  HandlerResult result;
  if (request.beam_search)
    result.pending = search_beams(service, request, beams, std::move(work));
  else
    result.pending =
        std::make_unique<GenerationTask>(service.engines, service.metrics, std::move(work));
  return result;
}

}  // namespace trireme
