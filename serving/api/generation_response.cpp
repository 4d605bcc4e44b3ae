#include "serving/api/generation_response.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"
#include "serving/api/response_body.h"
#include "serving/api/response_events.h"

namespace trireme {
namespace {

constexpr int64_t kBytesOfToken = 100;  // including its log-probability, as JSON
constexpr int64_t kBytesOfId = 7;

}  // namespace

GenerationResponse::GenerationResponse(ResponseIdentity identity, ResponseForm form,
                                       const Tokenizer& tokenizer,
                                       std::vector<std::vector<int32_t>> prompts)
    : response_(new ResponseContext{std::move(identity), std::move(form), tokenizer,
                                    std::move(prompts)}) {
  for (const std::vector<int32_t>& prompt : response_->prompts) {
    TextStreamOptions options = response_->form.text;
    // A text starts (without the space of its first token) if it includes the prompt, or if the
    // prompt has no visible text.
    const auto has_text = [&](int32_t id) {
      return options.show_special || !tokenizer.is_control(id);
    };
    options.at_start = response_->form.echo || std::ranges::none_of(prompt, has_text);
    for (int64_t i = 0; i < response_->form.n; ++i)
      choices_.push_back(std::make_unique<GenerationChoice>(choices_.size(), *response_, options));
  }
  open_ = choices_.size();
}

std::string GenerationResponse::body() const {
  TRIREME_CHECK(done(), "body() was called before the response is complete");
  return response_body(*response_, choices_, usage());
}

Usage GenerationResponse::usage() const {
  Usage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i]->generated;
    if (i != response_->first_of_prompt(i)) continue;
    usage.cached_tokens += choices_[i]->cached_prompt;
    usage.prompt_tokens += std::ssize(response_->prompt_of(i));
  }
  return usage;
}

void GenerationResponse::accept(size_t number, std::span<const OutputToken> prompt,
                                std::span<const OutputToken> tokens, int64_t cached_prompt,
                                std::optional<FinishReason> finish, std::string& frames) {
  GenerationChoice& choice = *choices_[number];
  const ResponseForm& form = response_->form;
  if (choice.finish != nullptr) return;
  choice.cached_prompt = cached_prompt;
  TextDelta delta;
  const bool first = !std::exchange(choice.begun, true);
  accept_prompt(choice, first, prompt, delta);
  const int64_t before = choice.generated;
  if (!form.without_text)
    for (size_t i = 0; i < tokens.size() && !choice.stream.stopped(); ++i)
      choice.add_token(form, tokens[i], finish == FinishReason::kStop && i + 1 == tokens.size(),
                       delta);
  if (form.token_ids && !form.stream) hold_ids(choice, first, choice.generated - before);
  if (finish && !choice.stream.stopped()) choice.stream.finish(delta);
  if (choice.stream.stopped() || finish) {
    --open_;
    choice.end(form, finish, tokens);
  }
  std::vector<ToolCallDelta::Call> calls;
  if (form.tools.format != ToolFormat::kNone) calls = choice.take_calls(delta.text);
  const auto reported = std::ssize(delta.tokens);
  choice.add_logprobs(delta.tokens);
  if (form.stream)
    write_events(choice, first, delta.text, calls, frames);
  else
    hold(choice, delta, reported, std::move(calls));
}

// The first choice of a prompt stores the log-probabilities of the prompt's tokens for all choices.
void GenerationResponse::accept_prompt(GenerationChoice& choice, bool first,
                                       std::span<const OutputToken> tokens, TextDelta& delta) {
  const ResponseForm& form = response_->form;
  const size_t first_of_prompt = response_->first_of_prompt(choice.index);
  const bool others = choice.index != first_of_prompt;
  if (form.echo) {
    std::vector<OutputToken>& echoed = choices_[first_of_prompt]->echoed;
    if (!others && form.n > 1 && form.top_logprobs >= 0)
      echoed.insert(echoed.end(), tokens.begin(), tokens.end());
    if (others) tokens = first ? std::span<const OutputToken>(echoed) : tokens.first(0);
    choice.echo(*response_, first, tokens, delta);
  }
  if (form.prompt_logprobs < 0 || others) return;
  for (const OutputToken& token : tokens)
    choice.prompt.push_back(with_top(token, form.prompt_logprobs));
  // In a completion every choice repeats them.
  const int64_t copies = form.chat ? 1 : form.returned > 0 ? form.returned : form.n;
  held_ += copies * std::ssize(tokens) * kBytesOfToken * (1 + form.prompt_logprobs);
}

// A chat lists the ids of its prompt once, a completion in every choice.
void GenerationResponse::hold_ids(const GenerationChoice& choice, bool first, int64_t tokens) {
  if (first && (!response_->form.chat || choice.index == 0))
    held_ += std::ssize(response_->prompt_of(choice.index)) * kBytesOfId;
  held_ += tokens * kBytesOfId;
}

// `reported`: number of tokens with log-probabilities in the delta.
void GenerationResponse::hold(GenerationChoice& choice, const TextDelta& delta, int64_t reported,
                              std::vector<ToolCallDelta::Call> calls) {
  for (const ToolCallDelta::Call& call : calls) held_ += std::ssize(call.arguments);
  const int64_t top = std::max(response_->form.top_logprobs, 0);
  held_ += std::ssize(delta.text) + reported * kBytesOfToken * (1 + top);
  choice.hold(delta.text, std::move(calls));
}

void GenerationResponse::write_events(GenerationChoice& choice, bool first, const std::string& text,
                                      const std::vector<ToolCallDelta::Call>& calls,
                                      std::string& frames) const {
  const Usage now = response_->form.include_usage ? usage() : Usage{};
  ResponseEvents events(*response_, now, frames);
  if (first && response_->form.chat) events.write_role(choice);
  if (!text.empty() || !choice.reported.empty()) events.write_text(choice, text);
  if (!calls.empty()) events.write_calls(choice, calls);
  if (choice.finish != nullptr) events.write_finish(choice);
  if (done()) events.end();
}

}  // namespace trireme
