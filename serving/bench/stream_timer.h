// Timer of a streamed response of OpenAI's API: reads its events and records when tokens arrive.
#pragma once

#include <string>

#include "serving/bench/latency.h"

namespace trireme {

class StreamTimer {
 public:
  StreamTimer(RequestOutcome& outcome, bool chat) : outcome_(outcome), chat_(chat) {}

  // Processes an event's data, received `seconds` after the request was sent. An event has tokens
  // if it has text, or if it has no text but is neither a chat's opening (its role) nor the end of
  // a choice: a token may have no text of its own. InputError with the server's message for an
  // error event, and for an event that is not the API's.
  void event(const std::string& data, double seconds);

  // The response has ended. known_input_tokens: used if the server has sent no usage; 0: unknown.
  // InputError if the response is incomplete.
  void finish(int64_t known_input_tokens);

  // True: token counts are the server's; false: events were counted.
  bool has_usage() const { return has_usage_; }

 private:
  RequestOutcome& outcome_;
  bool chat_, begun_ = false, ended_ = false, has_usage_ = false;
  double last_ = 0;
  int64_t token_events_ = 0;
};

// Message of an error response; the start of the body if it has none.
std::string error_message_of(const std::string& body);

}  // namespace trireme
