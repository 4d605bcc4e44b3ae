// Reads the events of one streamed answer of OpenAI's API and notes when its tokens came.
#pragma once

#include <string>

#include "serving/bench/latency.h"

namespace trireme {

class StreamTimer {
 public:
  StreamTimer(RequestOutcome& outcome, bool chat) : outcome_(outcome), chat_(chat) {}

  // An event's data, so many seconds after the request was sent. What tells of tokens is an event
  // with text, and one without text that is neither a chat's opening (its role) nor a choice's end:
  // a token may have no text of its own. InputError with the server's words where it is an error,
  // and for what is no event of the API.
  void event(const std::string& data, double seconds);

  // The answer has ended. known_input_tokens: where the server has told no numbers; 0: not known.
  // InputError where the answer was not complete.
  void finish(int64_t known_input_tokens);

  // Numbers of tokens are the server's; else events were counted.
  bool has_usage() const { return has_usage_; }

 private:
  RequestOutcome& outcome_;
  bool chat_, begun_ = false, ended_ = false, has_usage_ = false;
  double last_ = 0;
  int64_t token_events_ = 0;
};

// What an error's body says: its message where it has one.
std::string error_message_of(const std::string& body);

}  // namespace trireme
