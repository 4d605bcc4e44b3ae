// Form of the response to a completion or a chat, as its request asks for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/structured/tool_call_parser.h"
#include "serving/text/text_stream.h"

namespace trireme {

// Members of a request that the form of its response depends on.
struct ReplyForm {
  bool chat = false;
  bool stream = false, include_usage = false, usage_in_each = false;
  bool echo = false;  // the prompts begin the texts
  // max_tokens = 0: the token that was computed all the same is left out.
  bool without_text = false;
  int32_t top_logprobs = -1, prompt_logprobs = -1;
  bool tokens_as_ids = false;
  bool token_ids = false;              // those of prompts and completions are written
  std::vector<int32_t> stop_ids = {};  // those of tokens that end a text which the client has named
  int64_t n = 1;                       // choices of each prompt that are computed
  int64_t told = 0;  // of them, those with the highest log-probability per token; 0: all
  TextStreamOptions text = {};
  ToolCallOptions tools = {};  // of chats: what of the texts is calls
};
ReplyForm form_of(const CompletionRequest& request);
ReplyForm form_of(const ChatRequest& request);

}  // namespace trireme
