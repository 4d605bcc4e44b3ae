// Events of a streaming response.
//
// Their order: for each choice the role (chats only), pieces of text, an event with the
// finish_reason; choices in any mixture; then, if asked for, one without choices that has the
// usage; then "[DONE]". An error in between ends the stream with an event that holds it, and
// nothing follows.
#pragma once

#include <string>
#include <vector>

#include "serving/api/generation_choice.h"
#include "serving/api/usage.h"

namespace trireme {

// Writes events that are due together, in their order.
class ReplyEvents {
 public:
  // All outlive this object. usage: of the response so far.
  ReplyEvents(const ReplyContext& reply, const Usage& usage, std::string& frames)
      : reply_(reply), usage_(usage), frames_(frames) {}

  void write_role(GenerationChoice& choice) { write_frame(choice, "", true, nullptr); }
  // With the log-probabilities and ids that are not written yet.
  void write_text(GenerationChoice& choice, const std::string& text) {
    write_frame(choice, text, false, nullptr);
  }
  // An event for each call's name, then for its arguments.
  void write_calls(const GenerationChoice& choice, const std::vector<ToolCallDelta::Call>& calls);
  void write_finish(GenerationChoice& choice) {
    write_frame(choice, "", false, choice.told_finish());
  }
  void end();

 private:
  void write_frame(GenerationChoice& choice, const std::string& text, bool role,
                   const char* finish);
  void write_call(const GenerationChoice& choice, const ToolCallDelta::Call& call, bool begins);
  void write_new_ids(JsonWriter& json, GenerationChoice& choice) const;
  void write_usage_so_far(JsonWriter& json) const;

  const ReplyContext& reply_;
  const Usage& usage_;
  std::string& frames_;
};

}  // namespace trireme
