#include "serving/api/generation_reply.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <set>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "serving/api/json_writer.h"
#include "serving/api/prompt_logprobs.h"

namespace trireme {
namespace {

constexpr int64_t kBytesOfToken = 100;  // with its log-probability, as JSON
constexpr int64_t kBytesOfId = 7;

// Of a token of the prompt so many of the most probable: logprobs with echo and prompt_logprobs may ask for others.
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

struct GenerationReply::Choice {
  Choice(size_t number, const Tokenizer& tokenizer, const TextStreamOptions& options,
         const ToolCallOptions& tools)
      : index(number), stream(tokenizer, options), parser(tools) {}

  size_t index;
  TextStream stream;
  ToolCallParser parser;
  bool begun = false;
  int64_t generated = 0;
  int64_t cached_prompt = 0;
  const char* finish = nullptr;
  std::optional<int32_t> stop_id;  // that has ended it, of ReplyForm::stop_ids
  std::vector<int32_t> ids;        // of its text, with token_ids; of a stream those not told yet
  bool prompt_told = false;        // of a stream: its ids
  // Of tokens whose shares of the text are not told yet, in their order.
  std::deque<ChosenToken> waiting;
  // Told, with their texts: of the event that is being written, or of the whole answer.
  struct Told {
    ChosenToken token;
    TokenText text;
    bool first = false;  // of a prompt: nothing says how probable it is
  };
  std::vector<Told> told;
  std::vector<ChosenToken> prompt;  // with prompt_logprobs, of the first choice of a prompt
  std::vector<ChosenToken> echoed;  // the same for the others to echo
  double logprob = 0;               // of all of its tokens
  // Of an answer that is no stream.
  std::string text;
  std::vector<ToolCallDelta::Call> calls;
};

GenerationReply::GenerationReply(ReplyIdentity identity, ReplyForm form, const Tokenizer& tokenizer,
                                 std::vector<std::vector<int32_t>> prompts)
    : identity_(std::move(identity)),
      form_(std::move(form)),
      tokenizer_(tokenizer),
      prompts_(std::move(prompts)) {
  for (const std::vector<int32_t>& prompt : prompts_) {
    TextStreamOptions options = form_.text;
    // What follows a prompt is the beginning of a text where the prompt has none, or is a part of it.
    options.at_start = form_.echo || std::all_of(prompt.begin(), prompt.end(), [&](int32_t id) {
                         return tokenizer.is_control(id);
                       });
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
  if (choice.stream.stopped() || finish) end(choice, finish, tokens);
  if (choice.finish != nullptr && !choice.stream.stopped()) choice.stream.finish(delta);
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

void GenerationReply::end_stream(std::string& frames) {
  if (form_.include_usage) {
    std::string data;
    JsonWriter json(data);
    begin_json(json);
    json.key("choices").begin_array().end_array().key("usage");
    write_usage(json);
    json.end_object();
    frames += sse_frame(data);
  }
  frames += sse_frame("[DONE]");
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

// --- JSON -----------------------------------------------------------------------------------------------

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

// role: the first event of a chat's choice. What is told of tokens goes with it.
void GenerationReply::write_frame(Choice& choice, const std::string& text, bool role,
                                  const char* finish, std::string& frames) {
  std::string data;
  JsonWriter json(data);
  begin_json(json);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(static_cast<int64_t>(choice.index));
  if (form_.chat) {
    json.key("delta").begin_object();
    if (role) json.key("role").string("assistant");
    if (role || finish == nullptr) json.key("content").string(text);
    json.end_object();
  } else {
    json.key("text").string(text);
  }
  json.key("logprobs");
  if (role || choice.told.empty()) {
    json.null();
  } else {
    write_logprobs(json, choice);
    choice.told.clear();
  }
  json.key("finish_reason");
  if (finish == nullptr)
    json.null();
  else
    json.string(finish);
  if (finish != nullptr) write_stop_reason(json, choice);
  if (form_.token_ids && !role) write_new_ids(json, choice);
  json.end_object().end_array();
  if (form_.token_ids && role) write_ids(json, "prompt_token_ids", prompt_of(choice));
  if (form_.include_usage) {
    json.key("usage");
    if (form_.usage_in_each)
      write_usage(json);
    else
      json.null();
  }
  json.end_object();
  frames += sse_frame(data);
}

// The stop string or the token that has ended the text, where the client has named it; OpenAI's answers have no such
// member, so others have none either.
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

// Of a stream: since the last event of the choice. A completion's first has its prompt's too.
void GenerationReply::write_new_ids(JsonWriter& json, Choice& choice) const {
  if (!form_.chat && !std::exchange(choice.prompt_told, true))
    write_ids(json, "prompt_token_ids", prompt_of(choice));
  write_ids(json, "token_ids", std::exchange(choice.ids, {}));
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

// An event for each: first the name, then the arguments as they come.
void GenerationReply::write_calls(Choice& choice, const std::vector<ToolCallDelta::Call>& calls,
                                  std::string& frames) {
  const auto write = [&](const ToolCallDelta::Call& call, bool begins) {
    std::string data;
    JsonWriter json(data);
    begin_json(json);
    json.key("choices").begin_array().begin_object();
    json.key("index").integer(static_cast<int64_t>(choice.index));
    json.key("delta").begin_object().key("tool_calls").begin_array().begin_object();
    json.key("index").integer(call.index);
    if (begins) json.key("id").string(call_id(choice, call.index)).key("type").string("function");
    json.key("function").begin_object();
    if (begins) json.key("name").string(call.name);
    json.key("arguments").string(begins ? "" : call.arguments);
    json.end_object().end_object().end_array().end_object();
    json.key("logprobs").null().key("finish_reason").null().end_object().end_array();
    if (form_.include_usage) {
      json.key("usage");
      if (form_.usage_in_each)
        write_usage(json);
      else
        json.null();
    }
    json.end_object();
    frames += sse_frame(data);
  };
  for (const ToolCallDelta::Call& call : calls) {
    if (!call.name.empty()) write(call, true);
    if (!call.arguments.empty()) write(call, false);
  }
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
