#include "serving/api/response_body.h"

#include <algorithm>
#include <numeric>

#include "serving/api/choice_logprobs.h"
#include "serving/api/prompt_logprobs.h"

namespace trireme {
namespace {

using Choices = std::span<const std::unique_ptr<GenerationChoice>>;

void write_message(JsonWriter& json, const ResponseContext& response,
                   const GenerationChoice& choice) {
  json.begin_object().key("role").string("assistant").key("content");
  if (choice.text.empty() && !choice.calls.empty())
    json.null();
  else
    json.string(choice.text);
  json.key("refusal").null();
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCallDelta::Call& call : choice.calls) {
      json.begin_object().key("id").string(response.call_id(choice.index, call.index));
      json.key("type").string("function").key("function").begin_object();
      json.key("name").string(call.name).key("arguments").string(call.arguments);
      json.end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

// Indices of the returned choices, in order; for best_of, the best of each prompt, best first.
std::vector<size_t> returned_choices(const ResponseForm& form, Choices choices) {
  std::vector<size_t> out(choices.size());
  std::iota(out.begin(), out.end(), size_t{0});
  if (form.returned == 0) return out;
  const auto worth = [&](size_t i) {
    const GenerationChoice& c = *choices[i];
    return c.logprob / static_cast<double>(std::max<int64_t>(c.generated, 1));
  };
  const auto n = static_cast<size_t>(form.n), returned = static_cast<size_t>(form.returned);
  std::vector<size_t> best;
  for (size_t first = 0; first < out.size(); first += n) {
    const auto of_prompt = std::span(out).subspan(first, n);
    std::ranges::stable_sort(of_prompt, [&](size_t a, size_t b) { return worth(a) > worth(b); });
    best.insert(best.end(), of_prompt.begin(),
                of_prompt.begin() + static_cast<std::ptrdiff_t>(returned));
  }
  return best;
}

void write_choice(JsonWriter& json, const ResponseContext& response, Choices choices,
                  const GenerationChoice& choice, size_t index) {
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (response.form.chat) {
    json.key("message");
    write_message(json, response, choice);
  } else {
    json.key("text").string(choice.text);
  }
  json.key("logprobs");
  if (response.form.top_logprobs >= 0)
    write_logprobs(json, response, choice);
  else
    json.null();
  json.key("finish_reason").string(choice.reported_finish());
  choice.write_stop_reason(json);
  if (response.form.token_ids) {
    if (!response.form.chat) write_ids(json, "prompt_token_ids", response.prompt_of(choice.index));
    write_ids(json, "token_ids", choice.ids);
  }
  if (!response.form.chat && response.form.prompt_logprobs >= 0) {
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, choices[response.first_of_prompt(choice.index)]->prompt,
                          response.tokenizer);
  }
  json.end_object();
}

}  // namespace

std::string response_body(const ResponseContext& response, Choices choices, const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  response.begin_json(json);
  json.key("choices").begin_array();
  size_t index = 0;
  for (const size_t i : returned_choices(response.form, choices))
    write_choice(json, response, choices, *choices[i], index++);
  json.end_array().key("usage");
  write_usage(json, usage);
  if (response.form.chat && response.form.prompt_logprobs >= 0) {
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, choices[0]->prompt, response.tokenizer);
  }
  if (response.form.chat && response.form.token_ids)
    write_ids(json, "prompt_token_ids", response.prompts.front());
  json.end_object();
  return out;
}

}  // namespace trireme
