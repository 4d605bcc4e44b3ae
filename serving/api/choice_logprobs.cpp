#include "serving/api/choice_logprobs.h"

#include <set>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "serving/api/prompt_logprobs.h"

namespace trireme {
namespace {

// A token by itself. as_key: one that is no UTF-8 has its bytes spelled, so that names differ.
std::string name_of(const ReplyContext& reply, int32_t id, bool as_key) {
  if (reply.form.tokens_as_ids) return concat("token_id:", id);
  if (!as_key) return token_text(reply.tokenizer, id);
  std::string bytes = token_bytes(reply.tokenizer, id);
  if (find_invalid_utf8(bytes) == bytes.size()) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) {
    constexpr char kHex[] = "0123456789abcdef";
    const auto b = static_cast<unsigned char>(byte);
    out.append("\\x").append(1, kHex[b >> 4]).append(1, kHex[b & 15]);
  }
  return out;
}

// told: its share of the text; absent for tokens that were only possible.
void write_token(JsonWriter& json, const ReplyContext& reply, int32_t id, double logprob,
                 const TokenText* told) {
  const std::string bytes = told != nullptr ? told->bytes : token_bytes(reply.tokenizer, id);
  json.key("token").string(
      told != nullptr && !reply.form.tokens_as_ids ? told->text : name_of(reply, id, false));
  json.key("logprob").number(told_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char byte : bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

void write_chat_logprobs(JsonWriter& json, const ReplyContext& reply,
                         const GenerationChoice& choice) {
  json.begin_object().key("content").begin_array();
  for (const GenerationChoice::Told& told : choice.told) {
    json.begin_object();
    write_token(json, reply, told.token.id, told.token.logprob, &told.text);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprob& top : told.token.top) {
      json.begin_object();
      write_token(json, reply, top.id, top.logprob, nullptr);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void write_completion_logprobs(JsonWriter& json, const ReplyContext& reply,
                               const GenerationChoice& choice) {
  json.begin_object().key("tokens").begin_array();
  for (const auto& told : choice.told)
    json.string(reply.form.tokens_as_ids ? name_of(reply, told.token.id, false) : told.text.text);
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
      const std::string name = name_of(reply, id, true);
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

}  // namespace

void write_logprobs(JsonWriter& json, const ReplyContext& reply, const GenerationChoice& choice) {
  if (reply.form.chat)
    write_chat_logprobs(json, reply, choice);
  else
    write_completion_logprobs(json, reply, choice);
}

}  // namespace trireme
