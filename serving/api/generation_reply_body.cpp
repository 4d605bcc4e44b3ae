// What whole answers and events of GenerationReply have in common, and the whole answers.
#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "serving/api/generation_reply_choice.h"
#include "serving/api/json_writer.h"
#include "serving/api/prompt_logprobs.h"

namespace trireme {

void GenerationReply::begin_json(JsonWriter& json) const {
  const char* object = form_.chat ? "chat.completion" : "text_completion";
  json.begin_object();
  json.key("id").string(identity_.id);
  json.key("object").string(form_.chat && form_.stream ? "chat.completion.chunk" : object);
  json.key("created").integer(identity_.created);
  json.key("model").string(identity_.model);
  json.key("system_fingerprint").string(identity_.fingerprint);
}

void GenerationReply::write_usage(JsonWriter& json) const {
  const Usage u = usage();
  json.begin_object();
  json.key("prompt_tokens").integer(u.prompt_tokens);
  json.key("completion_tokens").integer(u.completion_tokens);
  json.key("total_tokens").integer(u.prompt_tokens + u.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(u.cached_tokens).end_object();
  json.end_object();
}

// The stop string or the token that has ended the text, where the client has named it; OpenAI's
// answers have no such member, so others have none either.
void GenerationReply::write_stop_reason(JsonWriter& json, const Choice& choice) {
  if (choice.stream.stopped())
    json.key("stop_reason").string(choice.stream.stop());
  else if (choice.stop_id)
    json.key("stop_reason").integer(*choice.stop_id);
}

void GenerationReply::write_ids(JsonWriter& json, const char* name, std::span<const int32_t> ids) {
  json.key(name).begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

// Equal for equal answers, and as long as the family's templates want it.
std::string GenerationReply::call_id(const Choice& choice, int64_t index) const {
  constexpr char kLetters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool mistral = form_.tools.format == ToolFormat::kMistral;
  uint64_t state = std::hash<std::string>{}(concat(identity_.id, ":", choice.index, ":", index));
  std::string id = mistral ? "" : "call_";
  for (int i = 0; i < (mistral ? 9 : 24); ++i) {
    state = (state ^ state >> 29) * 0xBF58476D1CE4E5B9u + 0x9E3779B97F4A7C15u;
    id += kLetters[(state >> 33) % 62];
  }
  return id;
}

void GenerationReply::write_message(JsonWriter& json, const Choice& choice) const {
  json.begin_object().key("role").string("assistant").key("content");
  if (choice.text.empty() && !choice.calls.empty())
    json.null();
  else
    json.string(choice.text);
  json.key("refusal").null();
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCallDelta::Call& call : choice.calls) {
      json.begin_object().key("id").string(call_id(choice, call.index));
      json.key("type").string("function").key("function").begin_object();
      json.key("name").string(call.name).key("arguments").string(call.arguments);
      json.end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

std::string GenerationReply::body() const {
  TRIREME_CHECK(done(), "an answer that is not complete");
  std::string out;
  JsonWriter json(out);
  begin_json(json);
  json.key("choices").begin_array();
  size_t index = 0;
  for (const size_t i : told_choices()) write_choice(json, *choices_[i], index++);
  json.end_array().key("usage");
  write_usage(json);
  if (form_.chat && form_.prompt_logprobs >= 0) {
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, choices_[0]->prompt, tokenizer_);
  }
  if (form_.chat && form_.token_ids) write_ids(json, "prompt_token_ids", prompts_.front());
  json.end_object();
  return out;
}

// In their order; of each prompt's those that best_of leaves.
std::vector<size_t> GenerationReply::told_choices() const {
  std::vector<size_t> out(choices_.size());
  std::iota(out.begin(), out.end(), size_t{0});
  if (form_.told == 0) return out;
  const auto worth = [&](size_t i) {
    const Choice& c = *choices_[i];
    return c.logprob / static_cast<double>(std::max<int64_t>(c.generated, 1));
  };
  const auto n = static_cast<size_t>(form_.n), told = static_cast<size_t>(form_.told);
  std::vector<size_t> best;
  for (size_t first = 0; first < out.size(); first += n) {
    const auto of_prompt = std::span(out).subspan(first, n);
    std::ranges::stable_sort(of_prompt, [&](size_t a, size_t b) { return worth(a) > worth(b); });
    best.insert(best.end(), of_prompt.begin(),
                of_prompt.begin() + static_cast<std::ptrdiff_t>(told));
  }
  return best;
}

void GenerationReply::write_choice(JsonWriter& json, const Choice& choice, size_t index) const {
  json.begin_object().key("index").integer(static_cast<int64_t>(index));
  if (form_.chat) {
    json.key("message");
    write_message(json, choice);
  } else {
    json.key("text").string(choice.text);
  }
  json.key("logprobs");
  if (form_.top_logprobs >= 0)
    write_logprobs(json, choice);
  else
    json.null();
  json.key("finish_reason").string(told_finish(choice));
  write_stop_reason(json, choice);
  if (form_.token_ids) {
    if (!form_.chat) write_ids(json, "prompt_token_ids", prompt_of(choice));
    write_ids(json, "token_ids", choice.ids);
  }
  if (!form_.chat && form_.prompt_logprobs >= 0) {
    const size_t first = choice.index - choice.index % static_cast<size_t>(form_.n);
    json.key("prompt_logprobs");
    write_prompt_logprobs(json, choices_[first]->prompt, tokenizer_);
  }
  json.end_object();
}

void GenerationReply::write_logprobs(JsonWriter& json, const Choice& choice) const {
  if (form_.chat)
    write_chat_logprobs(json, choice);
  else
    write_completion_logprobs(json, choice);
}

// told: its share of the text; absent for tokens that were only possible.
void GenerationReply::write_token(JsonWriter& json, int32_t id, double logprob,
                                  const TokenText* told) const {
  const std::string bytes = told != nullptr ? told->bytes : token_bytes(tokenizer_, id);
  json.key("token").string(told != nullptr && !form_.tokens_as_ids ? told->text
                                                                   : name_of(id, false));
  json.key("logprob").number(told_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char byte : bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

void GenerationReply::write_chat_logprobs(JsonWriter& json, const Choice& choice) const {
  json.begin_object().key("content").begin_array();
  for (const Choice::Told& told : choice.told) {
    json.begin_object();
    write_token(json, told.token.id, told.token.logprob, &told.text);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprob& top : told.token.top) {
      json.begin_object();
      write_token(json, top.id, top.logprob, nullptr);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void GenerationReply::write_completion_logprobs(JsonWriter& json, const Choice& choice) const {
  json.begin_object().key("tokens").begin_array();
  for (const auto& told : choice.told)
    json.string(form_.tokens_as_ids ? name_of(told.token.id, false) : told.text.text);
  json.end_array().key("token_logprobs").begin_array();
  for (const auto& told : choice.told) {
    if (told.first)
      json.null();
    else
      json.number(told_logprob(told.token.logprob));
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const auto& told : choice.told) {
    if (told.first) {
      json.null();
      continue;
    }
    json.begin_object();
    std::set<std::string> names;
    const auto write = [&](int32_t id, double logprob) {
      const std::string name = name_of(id, true);
      if (names.insert(name).second) json.key(name).number(told_logprob(logprob));
    };
    for (const TokenLogprob& top : told.token.top) write(top.id, top.logprob);
    write(told.token.id, told.token.logprob);
    json.end_object();
  }
  json.end_array().key("text_offset").begin_array();
  for (const auto& told : choice.told) json.integer(told.text.offset);
  json.end_array().end_object();
}

// A token by itself. as_key: one that is no UTF-8 has its bytes spelled, so that names differ.
std::string GenerationReply::name_of(int32_t id, bool as_key) const {
  if (form_.tokens_as_ids) return concat("token_id:", id);
  if (!as_key) return token_text(tokenizer_, id);
  std::string bytes = token_bytes(tokenizer_, id);
  if (find_invalid_utf8(bytes) == bytes.size()) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) {
    constexpr char kHex[] = "0123456789abcdef";
    const auto b = static_cast<unsigned char>(byte);
    out.append("\\x").append(1, kHex[b >> 4]).append(1, kHex[b & 15]);
  }
  return out;
}

}  // namespace trireme
