// Timer of a streaming response of OpenAI's API: reads the events and records when tokens arrive.
#pragma once

#include <string>

#include "serving/bench/latency.h"

namespace trireme {

class StreamTimer {
 public:
  StreamTimer(RequestOutcome& outcome, bool chat) : outcome_(outcome), chat_(chat) {}

  // Processes an event's data, received `seconds` after the request was sent. An event has tokens
  // if one of its choices has. A choice with text (reasoning and refusals included) or tool calls
  // has tokens. A token may decode to no text, so a choice without text counts too, except one with
  // a finish reason, and in a chat one with a role or without a delta. InputError for an error
  // event, with the server's message, and for an event that is not of this API.
  void event(const std::string& data, double seconds);

  // Ends the response. known_input_tokens: used if the server has sent no usage; 0: unknown.
  // InputError if the response is incomplete or has no tokens.
  void finish(int64_t known_input_tokens);

  // True: token counts are the server's. False: output tokens are the number of events with tokens.
  bool has_usage() const { return has_usage_; }

 private:
  RequestOutcome& outcome_;
  bool chat_, begun_ = false, ended_ = false, has_usage_ = false;
  double last_ = 0;
  int64_t token_events_ = 0;
};

// Message of an error response, or its body if it has none; at most 300 bytes.
std::string error_message_of(const std::string& body);

}  // namespace trireme
