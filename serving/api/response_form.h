// Requested form of a completion's or chat's response.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/structured/tool_call_parser.h"
#include "serving/text/text_stream.h"

namespace trireme {

// The values of a request that determine the form of its response.
struct ResponseForm {
  bool chat = false;
  bool stream = false, include_usage = false, usage_in_each = false;
  bool echo = false;  // texts include their prompts
  // max_tokens is 0: one token is computed nevertheless, and omitted.
  bool without_text = false;
  int32_t top_logprobs = -1, prompt_logprobs = -1;
  bool tokens_as_ids = false;
  bool token_ids = false;              // writes the ids of prompts and completions
  std::vector<int32_t> stop_ids = {};  // stop token ids of the request, for stop_reason
  int64_t n = 1;                       // choices computed per prompt
  // Choices returned per prompt: those with the highest log-probability per token. 0: all.
  int64_t returned = 0;
  TextStreamOptions text = {};
  ToolCallOptions tools = {};  // of chats: how to find tool calls in the text
};
// These leave `tools` at its default: no tool calls.
ResponseForm form_of(const CompletionRequest& request);
ResponseForm form_of(const ChatRequest& request);

}  // namespace trireme
