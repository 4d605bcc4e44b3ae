// A choice of a response while it is generated: its text, tool calls, log-probabilities and end.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serving/api/json_writer.h"
#include "serving/api/reply_context.h"
#include "serving/scheduler/sequence.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

struct GenerationChoice {
  GenerationChoice(size_t number, const ReplyContext& reply, const TextStreamOptions& options)
      : index(number), stream(reply.tokenizer, options), parser(reply.form.tools) {}

  // Known tokens of the prompt to echo. The prompt's first one has no log-probability.
  void echo(const ReplyContext& reply, bool first, std::span<const ChosenToken> tokens,
            TextDelta& delta);
  // last: it ends the text.
  void add_token(const ReplyForm& form, const ChosenToken& token, bool last, TextDelta& delta);
  // By a stop string, or as the engine says, whose last tokens these are.
  void end(const ReplyForm& form, std::optional<FinishReason> reason,
           std::span<const ChosenToken> tokens);
  // Takes the calls out of a piece of text.
  std::vector<ToolCallDelta::Call> take_calls(std::string& piece);
  // Joins the tokens whose texts are known with what was sampled.
  void add_logprobs(std::vector<TokenText>& tokens);
  // Keeps a piece until the response is written (no stream).
  void hold(const std::string& piece, std::vector<ToolCallDelta::Call> pieces);

  // finish_reason: a text with calls has ended because of them.
  const char* told_finish() const;
  // The stop string or the token that has ended the text, where the client has named it; OpenAI's
  // responses have no such member, so others have none either.
  void write_stop_reason(JsonWriter& json) const;

  size_t index;
  TextStream stream;
  ToolCallParser parser;
  bool begun = false;
  int64_t generated = 0;
  int64_t cached_prompt = 0;
  const char* finish = nullptr;
  std::optional<int32_t> stop_id;  // that has ended it, of ReplyForm::stop_ids
  std::vector<int32_t> ids;        // of its text, with token_ids; of a stream those not written yet
  bool prompt_told = false;        // of a stream: its ids
  // Tokens whose shares of the text are not known yet, in their order.
  std::deque<ChosenToken> waiting;
  // Ready to be written, with their texts: of the current event, or of the whole response.
  struct Told {
    ChosenToken token;
    TokenText text;
    bool first = false;  // of a prompt: nothing says how probable it is
  };
  std::vector<Told> told;
  std::vector<ChosenToken> prompt;  // with prompt_logprobs, of the first choice of a prompt
  std::vector<ChosenToken> echoed;  // the same for the others to echo
  double logprob = 0;               // of all of its tokens
  // Held for a response that is no stream.
  std::string text;
  std::vector<ToolCallDelta::Call> calls;
};

// The prompt's token with at most max_top of its most probable alternatives: logprobs with echo and
// prompt_logprobs may ask for different numbers.
ChosenToken with_top(ChosenToken token, int32_t max_top);
void write_ids(JsonWriter& json, const char* name, std::span<const int32_t> ids);

}  // namespace trireme
