// Choice of a response during generation: its text, tool calls, log-probabilities and finish
// reason.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serving/api/json_writer.h"
#include "serving/api/response_context.h"
#include "serving/scheduler/scheduler_output.h"
#include "serving/scheduler/sequence.h"

namespace trireme {

struct GenerationChoice {
  GenerationChoice(size_t number, const ResponseContext& response, const TextStreamOptions& options)
      : index(number), stream(response.tokenizer, options), parser(response.form.tools) {}

  // Appends the prompt to the text. If log-probabilities are requested: the first token if `first`,
  // then `tokens`. Otherwise: the whole prompt if `first`, without regard to `tokens`. first: this
  // is the choice's first output. tokens: next prompt tokens with their log-probabilities, from the
  // prompt's second on, since the first has none.
  void echo(const ResponseContext& response, bool first, std::span<const OutputToken> tokens,
            TextDelta& delta);
  // last: this is the stop token that ends the text.
  void add_token(const ResponseForm& form, const OutputToken& token, bool last, TextDelta& delta);
  // Ends the choice. reason: the engine's; nullopt: only a stop string ends it. tokens: the last
  // tokens that the engine has reported.
  void end(const ResponseForm& form, std::optional<FinishReason> reason,
           std::span<const OutputToken> tokens);
  // Removes tool calls from the next piece of text and returns their pieces. Text that may begin a
  // call is held back for a later piece, at most until the choice has ended.
  std::vector<ToolCallDelta::Call> take_calls(std::string& piece);
  // Moves as many tokens from `waiting` to `reported`, each with its text. tokens: those whose text
  // is now known, in order.
  void add_logprobs(std::vector<TokenText>& tokens);
  // Stores a piece of text, and pieces of tool calls, for a non-streamed response.
  void hold(const std::string& piece, std::vector<ToolCallDelta::Call> pieces);

  // finish_reason for the response, once the choice has ended: `finish`, but "tool_calls" instead
  // of "stop" if the text has tool calls.
  const char* reported_finish() const;
  // Writes stop_reason: the request's stop string or stop token id that has ended the text. Omits
  // the member after any other end, since OpenAI's responses do not have it.
  void write_stop_reason(JsonWriter& json) const;

  size_t index;
  TextStream stream;
  ToolCallParser parser;
  bool begun = false;              // it has got output
  int64_t generated = 0;           // tokens
  int64_t cached_prompt = 0;       // prompt tokens found in the prefix cache
  const char* finish = nullptr;    // "stop" or "length"; nullptr: not ended
  std::optional<int32_t> stop_id;  // id in ResponseForm::stop_ids that has ended the text
  std::vector<int32_t> ids;        // token ids, if requested; for a stream, those not written yet
  bool prompt_written = false;     // for a stream: the prompt's ids have been written
  // Tokens whose share of the text is not known yet, in order. Empty unless log-probabilities are
  // requested.
  std::deque<OutputToken> waiting;
  // Tokens ready to be written, with their text: of the current event, or of the whole response.
  struct ReportedToken {
    OutputToken token;
    TokenText text;
    bool first = false;  // first token of a prompt: has no log-probability
  };
  std::vector<ReportedToken> reported;
  // Prompt tokens from the second on; only in the first choice of the prompt.
  std::vector<OutputToken> prompt;  // for prompt_logprobs
  std::vector<OutputToken> echoed;  // for the echo of the prompt's other choices
  double logprob = 0;               // sum over the generated tokens
  // Stored for a non-streamed response.
  std::string text;
  std::vector<ToolCallDelta::Call> calls;
};

// Returns a prompt token with at most max_top alternatives: `logprobs` with echo and
// `prompt_logprobs` may request different numbers of them.
OutputToken with_top(OutputToken token, int32_t max_top);
// Writes a member: an array of token ids.
void write_ids(JsonWriter& json, const char* name, std::span<const int32_t> ids);

}  // namespace trireme
