#include "serving/api/prompt_logprobs.h"

#include "engine/core/error.h"
#include "serving/api/token_name.h"

namespace trireme {

double reported_logprob(double logprob) {
  constexpr double kMinLogprob = -9999;
  return logprob > kMinLogprob ? logprob : kMinLogprob;
}

void write_prompt_logprobs(JsonWriter& json, std::span<const OutputToken> tokens,
                           const Tokenizer& tokenizer) {
  const auto write = [&](int32_t id, double logprob, int64_t rank) {
    json.key(concat(id)).begin_object();
    json.key("logprob").number(reported_logprob(logprob)).key("rank").integer(rank);
    json.key("decoded_token").string(token_name(tokenizer, id).name).end_object();
  };
  json.begin_array().null();
  for (const OutputToken& token : tokens) {
    json.begin_object();
    write(token.id, token.logprob, token.rank);
    for (size_t i = 0; i < token.top.size(); ++i)
      if (token.top[i].id != token.id)
        write(token.top[i].id, token.top[i].logprob, static_cast<int64_t>(i) + 1);
    json.end_object();
  }
  json.end_array();
}

}  // namespace trireme
