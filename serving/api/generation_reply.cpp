#include "serving/api/generation_reply.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "serving/api/generation_reply_choice.h"

namespace trireme {
namespace {

constexpr int64_t kBytesOfToken = 100;  // with its log-probability, as JSON
constexpr int64_t kBytesOfId = 7;

// Of a token of the prompt so many of the most probable: logprobs with echo and prompt_logprobs may
// ask for others.
ChosenToken with_top(ChosenToken token, int32_t most) {
  token.top.resize(std::min(token.top.size(), static_cast<size_t>(most)));
  return token;
}

ReplyForm common_form(const GenerationRequest& request) {
  ReplyForm form;
  form.stream = request.stream;
  form.include_usage = request.include_usage;
  form.usage_in_each = request.usage_in_each;
  form.top_logprobs = request.top_logprobs;
  form.prompt_logprobs = request.prompt_logprobs;
  form.tokens_as_ids = request.tokens_as_ids;
  form.token_ids = request.token_ids;
  form.stop_ids = request.stop_token_ids;
  form.n = request.n;
  form.text = {.stops = request.stop,
               .include_stop = request.include_stop,
               .min_tokens = request.min_tokens,
               .show_special = !request.skip_special,
               .tell_tokens = request.top_logprobs >= 0};
  return form;
}

}  // namespace

ReplyForm form_of(const CompletionRequest& request) {
  ReplyForm form = common_form(request);
  form.echo = request.echo;
  if (request.best_of > request.n) {
    form.told = request.n;
    form.n = request.best_of;
  }
  form.without_text = request.max_tokens == 0;
  return form;
}

ReplyForm form_of(const ChatRequest& request) {
  ReplyForm form = common_form(request);
  form.chat = true;
  return form;
}

std::string sse_frame(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 8);
  return out.append("data: ").append(data).append("\n\n");
}

GenerationReply::GenerationReply(ReplyIdentity identity, ReplyForm form, const Tokenizer& tokenizer,
                                 std::vector<std::vector<int32_t>> prompts)
    : identity_(std::move(identity)),
      form_(std::move(form)),
      tokenizer_(tokenizer),
      prompts_(std::move(prompts)) {
  for (const std::vector<int32_t>& prompt : prompts_) {
    TextStreamOptions options = form_.text;
    // What follows a prompt is the beginning of a text where the prompt has none, or is a part of
    // it.
    const auto has_text = [&](int32_t id) {
      return options.show_special || !tokenizer.is_control(id);
    };
    options.at_start = form_.echo || std::ranges::none_of(prompt, has_text);
    for (int64_t i = 0; i < form_.n; ++i)
      choices_.push_back(
          std::make_unique<Choice>(choices_.size(), tokenizer, options, form_.tools));
  }
  open_ = choices_.size();
}

GenerationReply::~GenerationReply() = default;
GenerationReply::GenerationReply(GenerationReply&&) noexcept = default;

bool GenerationReply::ended(size_t choice) const { return choices_[choice]->finish != nullptr; }

const char* GenerationReply::finish_reason(size_t choice) const { return choices_[choice]->finish; }

int64_t GenerationReply::completion_tokens(size_t choice) const {
  return choices_[choice]->generated;
}

Usage GenerationReply::usage() const {
  Usage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i]->generated;
    if (i % static_cast<size_t>(form_.n) != 0) continue;
    usage.cached_tokens += choices_[i]->cached_prompt;
    usage.prompt_tokens += std::ssize(prompts_[i / static_cast<size_t>(form_.n)]);
  }
  return usage;
}

void GenerationReply::accept(size_t number, std::span<const ChosenToken> prompt,
                             std::span<const ChosenToken> tokens, int64_t cached_prompt,
                             std::optional<FinishReason> finish, std::string& frames) {
  Choice& choice = *choices_[number];
  if (choice.finish != nullptr) return;
  choice.cached_prompt = cached_prompt;
  TextDelta delta;
  const bool first = !std::exchange(choice.begun, true);
  const size_t place = number % static_cast<size_t>(form_.n);  // among those of its prompt
  if (form_.echo) {
    std::vector<ChosenToken>& echoed = choices_[number - place]->echoed;
    if (place == 0 && form_.n > 1 && form_.top_logprobs >= 0)
      echoed.insert(echoed.end(), prompt.begin(), prompt.end());
    if (place > 0) prompt = first ? std::span<const ChosenToken>(echoed) : prompt.first(0);
    echo(choice, first, prompt, delta);
  }
  if (form_.prompt_logprobs >= 0 && place == 0) {
    for (const ChosenToken& token : prompt)
      choice.prompt.push_back(with_top(token, form_.prompt_logprobs));
    // A completion tells them with every choice.
    const int64_t copies = form_.chat ? 1 : form_.told > 0 ? form_.told : form_.n;
    held_ += copies * std::ssize(prompt) * kBytesOfToken * (1 + form_.prompt_logprobs);
  }
  const int64_t before = choice.generated;
  if (!form_.without_text)
    for (size_t i = 0; i < tokens.size() && !choice.stream.stopped(); ++i)
      add_token(choice, tokens[i], finish == FinishReason::kStop && i + 1 == tokens.size(), delta);
  if (form_.token_ids && !form_.stream) hold_ids(choice, first, choice.generated - before);
  if (finish && !choice.stream.stopped()) choice.stream.finish(delta);
  if (choice.stream.stopped() || finish) end(choice, finish, tokens);
  std::vector<ToolCallDelta::Call> calls;
  if (form_.tools.format != ToolFormat::kNone) find_calls(choice, delta.text, calls);
  const auto told = std::ssize(delta.tokens);
  add_logprobs(choice, delta.tokens);
  if (!form_.stream) {
    choice.text += delta.text;
    for (const ToolCallDelta::Call& call : calls) held_ += std::ssize(call.arguments);
    for (ToolCallDelta::Call& call : calls) {
      if (!call.name.empty())
        choice.calls.push_back(std::move(call));
      else
        choice.calls.back().arguments += call.arguments;
    }
    held_ += std::ssize(delta.text) + told * kBytesOfToken * (1 + std::max(form_.top_logprobs, 0));
    return;
  }
  if (first && form_.chat) write_frame(choice, "", true, nullptr, frames);
  if (!delta.text.empty() || !choice.told.empty())
    write_frame(choice, delta.text, false, nullptr, frames);
  if (!calls.empty()) write_calls(choice, calls, frames);
  if (choice.finish != nullptr) write_frame(choice, "", false, told_finish(choice), frames);
  if (done()) end_stream(frames);
}

// What of an echoed prompt is known now. Its first token has no log-probability.
void GenerationReply::echo(Choice& choice, bool first, std::span<const ChosenToken> prompt,
                           TextDelta& delta) {
  const std::vector<int32_t>& ids = prompt_of(choice);
  if (form_.top_logprobs < 0) {
    if (first)
      for (const int32_t id : ids) choice.stream.push(id, TokenRole::kPrompt, delta);
    return;
  }
  if (first) {
    choice.waiting.push_back({.id = ids[0], .logprob = std::nan("")});
    choice.stream.push(ids[0], TokenRole::kPrompt, delta);
  }
  for (const ChosenToken& token : prompt) {
    choice.waiting.push_back(with_top(token, form_.top_logprobs));
    choice.stream.push(token.id, TokenRole::kPrompt, delta);
  }
}

void GenerationReply::add_token(Choice& choice, const ChosenToken& token, bool last,
                                TextDelta& delta) {
  ++choice.generated;
  choice.logprob += token.logprob;
  if (form_.token_ids) choice.ids.push_back(token.id);
  if (form_.top_logprobs >= 0) choice.waiting.push_back(token);
  choice.stream.push(token.id, last ? TokenRole::kEnd : TokenRole::kText, delta);
}

// Joins the tokens whose texts are told with what was chosen.
void GenerationReply::add_logprobs(Choice& choice, std::vector<TokenText>& tokens) {
  for (TokenText& text : tokens) {
    ChosenToken token = std::move(choice.waiting.front());
    choice.waiting.pop_front();
    const bool first = std::isnan(token.logprob);
    choice.told.push_back({std::move(token), std::move(text), first});
  }
}

// By a stop string, or as the engine says, whose last tokens these are.
void GenerationReply::end(Choice& choice, std::optional<FinishReason> finish,
                          std::span<const ChosenToken> tokens) {
  --open_;
  const bool by_length = form_.without_text || finish == FinishReason::kLength;
  choice.finish = by_length && !choice.stream.stopped() ? "length" : "stop";
  if (by_length || finish != FinishReason::kStop || tokens.empty()) return;
  if (std::ranges::count(form_.stop_ids, tokens.back().id) > 0) choice.stop_id = tokens.back().id;
}

// A chat tells the ids of its prompt once, a completion with every choice.
void GenerationReply::hold_ids(const Choice& choice, bool first, int64_t tokens) {
  if (first && (!form_.chat || choice.index == 0))
    held_ += std::ssize(prompt_of(choice)) * kBytesOfId;
  held_ += tokens * kBytesOfId;
}

const std::vector<int32_t>& GenerationReply::prompt_of(const Choice& choice) const {
  return prompts_[choice.index / static_cast<size_t>(form_.n)];
}

// A text with calls has ended because of them.
const char* GenerationReply::told_finish(const Choice& choice) {
  const bool stop = std::string_view(choice.finish) == "stop";
  return stop && choice.parser.calls() > 0 ? "tool_calls" : choice.finish;
}

// Takes what is calls out of a piece of text.
void GenerationReply::find_calls(Choice& choice, std::string& text,
                                 std::vector<ToolCallDelta::Call>& calls) {
  ToolCallDelta found;
  choice.parser.push(std::exchange(text, {}), found);
  if (choice.finish != nullptr) choice.parser.finish(found);
  text = std::move(found.content);
  calls = std::move(found.calls);
}

}  // namespace trireme
