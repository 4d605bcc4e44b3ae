// The answer to a completion or a chat while its choices come: server-sent events as OpenAI's
// clients add them up, or one object at the end.
//
// Order of the events of a stream: for each choice the role (chats only), pieces of text, an event
// with the finish_reason; choices in any mixture; then, if asked for, one without choices that
// tells the usage; then "[DONE]". An error in between ends the stream with an event that holds it,
// and nothing follows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/scheduler/sequence.h"
#include "serving/scheduler/step_plan.h"
#include "serving/structured/tool_call_parser.h"
#include "serving/text/text_stream.h"

namespace trireme {

struct ReplyIdentity {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // of the weights
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// What of a request the answer's form depends on.
struct ReplyForm {
  bool chat = false;
  bool stream = false, include_usage = false, usage_in_each = false;
  bool echo = false;  // the prompts begin the texts
  bool without_text =
      false;  // of max_tokens = 0: the token that was computed all the same is not told
  int32_t top_logprobs = -1, prompt_logprobs = -1;
  bool tokens_as_ids = false;
  bool token_ids = false;              // those of prompts and texts are told
  std::vector<int32_t> stop_ids = {};  // those of tokens that end a text which the client has named
  int64_t n = 1;                       // choices of each prompt that are computed
  int64_t told = 0;  // of them, those with the highest log-probability per token; 0: all
  TextStreamOptions text = {};
  ToolCallOptions tools = {};  // of chats: what of the texts is calls
};
ReplyForm form_of(const CompletionRequest& request);
ReplyForm form_of(const ChatRequest& request);

// An event of a server-sent stream.
std::string sse_frame(std::string_view data);

// What comes of a choice is taken apart in generation_reply.cpp, the events of a stream are written
// in generation_reply_events.cpp, whole answers, and what both have in common, in
// generation_reply_body.cpp.
class GenerationReply {
 public:
  // prompts: as they were computed; choice i belongs to prompt i / n. The tokenizer must outlive
  // this object.
  GenerationReply(ReplyIdentity identity, ReplyForm form, const Tokenizer& tokenizer,
                  std::vector<std::vector<int32_t>> prompts);
  ~GenerationReply();
  GenerationReply(GenerationReply&&) noexcept;

  size_t choices() const { return choices_.size(); }
  // What has come of a choice: log-probabilities of its prompt's tokens (from the second on; of a
  // prompt's first choice, before anything of the others), tokens of its text, its end. Of a stream
  // the events are appended to `frames`. Ignored after the choice's end.
  void accept(size_t choice, std::span<const ChosenToken> prompt,
              std::span<const ChosenToken> tokens, int64_t cached_prompt,
              std::optional<FinishReason> finish, std::string& frames);
  // The choice is complete: by its last token, or earlier by a stop string.
  bool ended(size_t choice) const;
  bool done() const { return open_ == 0; }

  // When done: the whole answer.
  std::string body() const;
  // Of it, what is there by now, roughly as it will be written; of a stream 0.
  int64_t held_bytes() const { return held_; }
  Usage usage() const;
  int64_t completion_tokens(size_t choice) const;
  const char* finish_reason(size_t choice) const;

 private:
  struct Choice;
  void end_stream(std::string& frames);
  void echo(Choice& choice, bool first, std::span<const ChosenToken> prompt, TextDelta& delta);
  void add_token(Choice& choice, const ChosenToken& token, bool last, TextDelta& delta);
  void add_logprobs(Choice& choice, std::vector<TokenText>& tokens);
  void end(Choice& choice, std::optional<FinishReason> finish, std::span<const ChosenToken> tokens);
  void hold_ids(const Choice& choice, bool first, int64_t tokens);
  const std::vector<int32_t>& prompt_of(const Choice& choice) const;
  static const char* told_finish(const Choice& choice);
  void find_calls(Choice& choice, std::string& text, std::vector<ToolCallDelta::Call>& calls);
  void write_calls(Choice& choice, const std::vector<ToolCallDelta::Call>& calls,
                   std::string& frames);
  void write_message(class JsonWriter& json, const Choice& choice) const;
  std::string call_id(const Choice& choice, int64_t index) const;
  void write_frame(Choice& choice, const std::string& text, bool role, const char* finish,
                   std::string& frames);
  void begin_json(class JsonWriter& json) const;
  std::vector<size_t> told_choices() const;
  void write_choice(JsonWriter& json, const Choice& choice, size_t index) const;
  static void write_stop_reason(JsonWriter& json, const Choice& choice);
  static void write_ids(JsonWriter& json, const char* name, std::span<const int32_t> ids);
  void write_new_ids(JsonWriter& json, Choice& choice) const;
  void write_logprobs(JsonWriter& json, const Choice& choice) const;
  void write_chat_logprobs(JsonWriter& json, const Choice& choice) const;
  void write_completion_logprobs(JsonWriter& json, const Choice& choice) const;
  void write_token(JsonWriter& json, int32_t id, double logprob, const TokenText* told) const;
  std::string name_of(int32_t id, bool as_key) const;
  void write_usage(JsonWriter& json) const;

  ReplyIdentity identity_;
  ReplyForm form_;
  const Tokenizer& tokenizer_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::unique_ptr<Choice>> choices_;
  size_t open_ = 0;   // choices that have not ended
  int64_t held_ = 0;  // bytes
};

}  // namespace trireme
