// From a request of Service to what an engine is asked: tokens, how many more, and how they are chosen.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "serving/http/service.h"

namespace trireme {
namespace {

uint64_t random_seed() {
  thread_local std::mt19937_64 source{(uint64_t{std::random_device{}()} << 32) |
                                      std::random_device{}()};
  return source();
}

}  // namespace

void Service::check_bytes(std::string_view text, std::optional<int64_t> most_tokens,
                          const char* param) const {
  const int64_t of_token = tokenizer_.most_bytes_of_id();
  if (of_token == 0 || !most_tokens || std::ssize(text) / of_token <= *most_tokens) return;
  throw ApiError(400,
                 concat("a text of ", text.size(), " bytes has more than ", *most_tokens,
                        " tokens, which is what it may have"),
                 param, "context_length_exceeded");
}

std::vector<int32_t> Service::encode_prompt(const Prompt& prompt, bool add_special,
                                            std::optional<int64_t> most_tokens,
                                            const char* param) const {
  if (!prompt.is_text) return prompt.tokens;
  check_bytes(prompt.text, most_tokens, param);
  return tokenizer_.encode(prompt.text, {.add_special = add_special && config_.adds_special});
}

std::vector<int32_t> Service::encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                                          std::optional<int64_t> most_tokens) const {
  if (writer_ == nullptr)
    throw ApiError(400, "this model has no chat template: use /v1/completions", "messages",
                   "no_chat_template");
  WrittenConversation written;
  try {
    written = writer_->write(variables);
  } catch (const InputError& error) {
    fail_field("messages", error.what());
  }
  check_bytes(written.text, most_tokens, "messages");
  return tokenizer_.encode(
      written.text, {.add_special = add_special, .parse_special = true, .breaks = written.breaks});
}

int64_t Service::tokens_to_generate(const GenerationRequest& request, int64_t prompt) const {
  const int64_t room = config_.max_model_len - prompt;
  const auto fail_length = [&](const char* param, const std::string& message) {
    throw ApiError(400, message, param, "context_length_exceeded");
  };
  if (prompt == 0) fail_field("prompt", "the prompt has no tokens");
  // An echo without text computes the prompt alone: the token behind it is neither kept nor computed.
  const bool scores = request.max_tokens == 0 && room == 0;
  if (room < 1 && !scores)
    fail_length("prompt", concat("the prompt has ", prompt,
                                 " tokens, and with one more it may have ", config_.max_model_len));
  const int64_t wanted = request.max_tokens.value_or(room);
  if (wanted > room)
    fail_length("max_tokens",
                concat("the prompt has ", prompt, " tokens: with ", wanted,
                       " to generate they are more than the model's ", config_.max_model_len));
  return std::max<int64_t>(wanted, 1);  // what an echo without text needs
}

std::shared_ptr<TokenChoice> Service::choice_of(const GenerationRequest& request) const {
  auto choice = std::make_shared<TokenChoice>();
  choice->sampling = {.temperature = request.temperature,
                      .top_k = std::max<int64_t>(request.top_k, 0),
                      .top_p = request.top_p,
                      .min_p = request.min_p,
                      .seed = request.seed ? static_cast<uint64_t>(*request.seed) : random_seed(),
                      .typical_p = request.typical_p};
  choice->repetition_penalty = request.repetition_penalty;
  choice->frequency_penalty = request.frequency_penalty;
  choice->presence_penalty = request.presence_penalty;
  choice->top_logprobs = request.top_logprobs;
  choice->min_tokens = request.min_tokens;
  choice->end_ids = request.stop_token_ids;
  if (!request.ignore_eos)
    choice->end_ids.insert(choice->end_ids.end(), config_.end_ids.begin(), config_.end_ids.end());
  choice->logit_bias = request.logit_bias;
  for (const std::string& word : request.bad_words) {
    // As it is at the beginning of a text, and behind a space.
    for (const std::string& spelled : {word, concat(" ", word)})
      if (std::vector<int32_t> ids = tokenizer_.encode(spelled); !ids.empty())
        choice->bad_words.push_back(std::move(ids));
  }
  return choice;
}

}  // namespace trireme
