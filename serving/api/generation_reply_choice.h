// A choice of an answer while it comes. For the files of GenerationReply only.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "serving/api/generation_reply.h"

namespace trireme {

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

}  // namespace trireme
