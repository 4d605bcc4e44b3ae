#include "serving/api/choice_logprobs.h"

#include <set>

#include "engine/core/error.h"
#include "serving/api/prompt_logprobs.h"
#include "serving/api/token_name.h"

namespace trireme {
namespace {

// Name of token `id` at this position; for the sampled token, that of its share of the text.
TokenName name_at(const ResponseContext& response, const GenerationChoice::ReportedToken& reported,
                  int32_t id) {
  TokenName name =
      id == reported.token.id ? token_name(reported.text) : token_name(response.tokenizer, id);
  if (response.form.tokens_as_ids) name.name = concat("token_id:", id);
  return name;
}

void write_token(JsonWriter& json, const TokenName& token, double logprob) {
  json.key("token").string(token.name);
  json.key("logprob").number(reported_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char byte : token.bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

// The sampled token first, then the most probable others, keyed by unique names: a token whose
// spelling is taken gets the name of `return_tokens_as_token_ids`.
void write_top(JsonWriter& json, const ResponseContext& response,
               const GenerationChoice::ReportedToken& reported) {
  const std::string chosen = name_at(response, reported, reported.token.id).name;
  std::set<std::string> names{chosen};
  json.begin_object().key(chosen).number(reported_logprob(reported.token.logprob));
  for (const TokenLogprob& top : reported.token.top) {
    if (top.id == reported.token.id) continue;
    std::string name = name_at(response, reported, top.id).name;
    if (!names.insert(name).second) name = concat("token_id:", top.id);
    json.key(name).number(reported_logprob(top.logprob));
  }
  json.end_object();
}

void write_chat_logprobs(JsonWriter& json, const ResponseContext& response,
                         const GenerationChoice& choice) {
  json.begin_object().key("content").begin_array();
  for (const GenerationChoice::ReportedToken& reported : choice.reported) {
    json.begin_object();
    write_token(json, name_at(response, reported, reported.token.id), reported.token.logprob);
    json.key("top_logprobs").begin_array();
    for (const TokenLogprob& top : reported.token.top) {
      json.begin_object();
      write_token(json, name_at(response, reported, top.id), top.logprob);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void write_completion_logprobs(JsonWriter& json, const ResponseContext& response,
                               const GenerationChoice& choice) {
  json.begin_object().key("tokens").begin_array();
  for (const auto& reported : choice.reported)
    json.string(name_at(response, reported, reported.token.id).name);
  json.end_array().key("token_logprobs").begin_array();
  for (const auto& reported : choice.reported) {
    if (reported.first)
      json.null();
    else
      json.number(reported_logprob(reported.token.logprob));
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const auto& reported : choice.reported) {
    if (reported.first)
      json.null();
    else
      write_top(json, response, reported);
  }
  json.end_array().key("text_offset").begin_array();
  for (const auto& reported : choice.reported) json.integer(reported.text.offset);
  json.end_array().end_object();
}

}  // namespace

void write_logprobs(JsonWriter& json, const ResponseContext& response,
                    const GenerationChoice& choice) {
  if (response.form.chat)
    write_chat_logprobs(json, response, choice);
  else
    write_completion_logprobs(json, response, choice);
}

}  // namespace trireme
