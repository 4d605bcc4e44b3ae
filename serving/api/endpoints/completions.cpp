#include "serving/api/endpoints/completions.h"

#include <algorithm>

#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

constexpr char kPromptShape[] =
    R"({"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"string"}},)"
    R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},)"
    R"({"type":"array","minItems":1,"items":{"type":"array","minItems":1,)"
    R"("items":{"type":"integer","minimum":0}}}]})";

FieldTable<CompletionRequest> make_completion_table() {
  using R = CompletionRequest;
  FieldTable<R> t;
  t.string("model", &R::model, "Model id, as listed by /v1/models.").size_range(1, 512).required();
  t.other("prompt", FieldKind::kOther, "", kPromptShape,
          "A text, a list of texts, or their token ids; at most 128 choices (prompts times n).",
          [](R& r, const ApiJson& v, const Field& f) { r.prompts = read_prompts(f, v, 128); })
      .required();
  t.other("max_tokens", FieldKind::kInteger, "16", "",
          "Maximum tokens of a completion; 0 only with echo.",
          [](R& r, const ApiJson& v, const Field& f) { r.max_tokens = read_integer(f, v); })
      .range(0, 1e9);
  t.boolean("echo", &R::echo, "false", "Return the prompt before the completion.");
  t.integer("logprobs", &R::top_logprobs, "",
            "Number of most probable tokens to return at each position, with log-probabilities, "
            "besides the token itself; with echo also for the prompt.")
      .range(0, static_cast<double>(kMaxTopLogprobs));
  t.boolean("add_special_tokens", &R::add_special, "true",
            "Add the special tokens that the model expects before a text, such as <s>.");
  t.integer("best_of", &R::best_of, "0",
            "Number of choices to compute, of which the n with the highest log-probability per "
            "token are returned; 0: n. Values above n are refused with stream.")
      .range(0, 128);
  add_ending_fields(t);
  add_sampling_fields(t);
  add_serving_fields(t);
  for (const char* name : {"tools", "tool_choice", "functions", "function_call"})
    t.refused(name, {"[]", "\"none\""}, "use /v1/chat/completions");
  t.add_peer_fields('c');
  return t;
}

const FieldTable<CompletionRequest>& completion_table() {
  static const FieldTable<CompletionRequest> made = make_completion_table();
  return made;
}

std::span<const Field> completion_fields() { return completion_table().fields(); }

}  // namespace

const Endpoint kCompletionsEndpoint = {.method = "POST",
                                       .path = "/v1/completions",
                                       .summary = "Create a completion",
                                       .fields = completion_fields,
                                       .streams = true,
                                       .is_admitted = true};

CompletionRequest parse_completion(std::string_view body, const RequestLimits& limits) {
  const ApiJson object = parse_body(body, limits.json_depth);
  CompletionRequest request;
  request.max_tokens = 16;
  completion_table().read(object, request, request.unknown);
  refuse_unknown_constraints(object, completion_table().fields());
  check_generation(request, object, limits);
  if (request.best_of != 0 && request.best_of < request.n)
    fail_field("best_of", "best_of must be >= n, which is ", request.n);
  if (request.best_of > request.n && request.stream)
    fail_field("best_of", "best_of above n is not available with stream");
  check_beam_search(request, std::max(request.n, request.best_of));
  for (const Prompt& prompt : request.prompts)
    check_ids("prompt", prompt.tokens, limits.vocab_size);
  if (request.max_tokens == 0 && !request.echo)
    fail_field("max_tokens", "max_tokens must be >= 1 unless echo is true");
  const int64_t each = std::max(request.n, request.best_of);
  const int64_t sequences = std::ssize(request.prompts) * each;
  if (sequences > limits.sequences)
    fail_field(each > request.n ? "best_of" : "n", std::ssize(request.prompts), " prompts times ",
               each, " are ", sequences, " choices, at most ", limits.sequences, " are allowed");
  return request;
}

}  // namespace trireme
