#include "serving/api/reply_body.h"

#include <algorithm>
#include <numeric>

#include "serving/api/choice_logprobs.h"
#include "serving/api/prompt_logprobs.h"

namespace trireme {
namespace {

using Choices = std::span<const std::unique_ptr<GenerationChoice>>;

void write_message(JsonWriter& json, const ReplyContext& reply, const GenerationChoice& choice) {
  json.begin_object().key("role").string("assistant").key("content");
  if (choice.text.empty() && !choice.calls.empty())
    json.null();
  else
    json.string(choice.text);
  json.key("refusal").null();
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCallDelta::Call& call : choice.calls) {
      json.begin_object().key("id").string(reply.call_id(choice.index, call.index));
      json.key("type").string("function").key("function").begin_object();
      json.key("name").string(call.name).key("arguments").string(call.arguments);
      json.end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

// Indices of the returned choices, in order; for best_of, the best of each prompt, best first.
std::vector<size_t> told_choices(const ReplyForm& form, Choices choices) {
  std::vector<size_t> out(choices.size());
  std::iota(out.begin(), out.end(), size_t{0});
  if (form.told == 0) return out;
  const auto worth = [&](size_t i) {
    const GenerationChoice& c = *choices[i];
    return c.logprob / static_cast<double>(std::max<int64_t>(c.generated, 1));
  };
  const auto n = static_cast<size_t>(form.n), told = static_cast<size_t>(form.told);
  std::vector<size_t> best;
  for (size_t first = 0; first < out.size(); first += n) {
    const auto of_prompt = std::span(out).subspan(first, n);
    std::ranges::stable_sort(of_prompt, [&](size_t a, size_t b) { return worth(a) > worth(b); });
    best.insert(best.end(), of_prompt.begin(),
                of_prompt.begin() + static_cast<std::ptrdiff_t>(told));
  }
  return best;
}

void write_choice(JsonWriter& json, const ReplyContext& reply, Choices choices,
                  const GenerationChoice& choice, size_t index) {
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (reply.form.chat) {
    json.key("message");
    write_message(json, reply, choice);
  } else {
    json.key("text").string(choice.text);
  }
  json.key("logprobs");
  if (reply.form.top_logprobs >= 0)
    write_logprobs(json, reply, choice);
  else
    json.null();
  json.key("finish_reason").string(choice.told_finish());
  choice.write_stop_reason(json);
  if (reply.form.token_ids) {
    if (!reply.form.chat) write_ids(json, "prompt_token_ids", reply.prompt_of(choice.index));
    write_ids(json, "token_ids", choice.ids);
  }
  if (!reply.form.chat && reply.form.prompt_logprobs >= 0) {
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, choices[reply.first_of_prompt(choice.index)]->prompt,
                          reply.tokenizer);
  }
  json.end_object();
}

}  // namespace

std::string reply_body(const ReplyContext& reply, Choices choices, const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  reply.begin_json(json);
  json.key("choices").begin_array();
  size_t index = 0;
  for (const size_t i : told_choices(reply.form, choices))
    write_choice(json, reply, choices, *choices[i], index++);
  json.end_array().key("usage");
  write_usage(json, usage);
  if (reply.form.chat && reply.form.prompt_logprobs >= 0) {
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, choices[0]->prompt, reply.tokenizer);
  }
  if (reply.form.chat && reply.form.token_ids)
    write_ids(json, "prompt_token_ids", reply.prompts.front());
  json.end_object();
  return out;
}

}  // namespace trireme
