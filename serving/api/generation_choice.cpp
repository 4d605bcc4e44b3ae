#include "serving/api/generation_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme {

void GenerationChoice::echo(const ResponseContext& response, bool first,
                            std::span<const OutputToken> tokens, TextDelta& delta) {
  const std::vector<int32_t>& prompt_ids = response.prompt_of(index);
  if (response.form.top_logprobs < 0) {
    if (first)
      for (const int32_t id : prompt_ids) stream.push(id, TokenRole::kPrompt, delta);
    return;
  }
  if (first) {
    waiting.push_back({.id = prompt_ids[0], .logprob = std::nan("")});
    stream.push(prompt_ids[0], TokenRole::kPrompt, delta);
  }
  for (const OutputToken& token : tokens) {
    waiting.push_back(with_top(token, response.form.top_logprobs));
    stream.push(token.id, TokenRole::kPrompt, delta);
  }
}

void GenerationChoice::add_token(const ResponseForm& form, const OutputToken& token, bool last,
                                 TextDelta& delta) {
  ++generated;
  logprob += token.logprob;
  if (form.token_ids) ids.push_back(token.id);
  if (form.top_logprobs >= 0) waiting.push_back(token);
  stream.push(token.id, last ? TokenRole::kEnd : TokenRole::kText, delta);
}

void GenerationChoice::end(const ResponseForm& form, std::optional<FinishReason> reason,
                           std::span<const OutputToken> tokens) {
  const bool by_length = form.without_text || reason == FinishReason::kLength;
  finish = by_length && !stream.stopped() ? "length" : "stop";
  if (by_length || reason != FinishReason::kStop || tokens.empty()) return;
  if (std::ranges::count(form.stop_ids, tokens.back().id) > 0) stop_id = tokens.back().id;
}

std::vector<ToolCallDelta::Call> GenerationChoice::take_calls(std::string& piece) {
  ToolCallDelta found;
  parser.push(std::exchange(piece, {}), found);
  if (finish != nullptr) parser.finish(found);
  piece = std::move(found.content);
  return std::move(found.calls);
}

void GenerationChoice::add_logprobs(std::vector<TokenText>& tokens) {
  for (TokenText& of_token : tokens) {
    OutputToken token = std::move(waiting.front());
    waiting.pop_front();
    const bool first = std::isnan(token.logprob);
    reported.push_back({std::move(token), std::move(of_token), first});
  }
}

void GenerationChoice::hold(const std::string& piece, std::vector<ToolCallDelta::Call> pieces) {
  text += piece;
  for (ToolCallDelta::Call& call : pieces) {
    if (!call.name.empty())
      calls.push_back(std::move(call));
    else
      calls.back().arguments += call.arguments;
  }
}

const char* GenerationChoice::reported_finish() const {
  const bool stop = std::string_view(finish) == "stop";
  return stop && parser.calls() > 0 ? "tool_calls" : finish;
}

void GenerationChoice::write_stop_reason(JsonWriter& json) const {
  if (stream.stopped())
    json.key("stop_reason").string(stream.stop());
  else if (stop_id)
    json.key("stop_reason").integer(*stop_id);
}

OutputToken with_top(OutputToken token, int32_t max_top) {
  token.top.resize(std::min(token.top.size(), static_cast<size_t>(max_top)));
  return token;
}

void write_ids(JsonWriter& json, const char* name, std::span<const int32_t> ids) {
  json.key(name).begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

}  // namespace trireme
