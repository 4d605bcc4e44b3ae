// Events of a streaming response.
//
// Order: for each choice its role (chats only), pieces of text, and an event with the
// finish_reason, with choices interleaved in any way; then, if requested, an event without choices
// that has the usage; then "[DONE]". An error ends the stream with an event that holds it, without
// "[DONE]".
#pragma once

#include <string>
#include <vector>

#include "serving/api/generation_choice.h"
#include "serving/api/usage.h"

namespace trireme {

// Writes events that are due together, in order.
class ResponseEvents {
 public:
  // All must outlive this object. usage: of the response so far.
  ResponseEvents(const ResponseContext& response, const Usage& usage, std::string& frames)
      : response_(response), usage_(usage), frames_(frames) {}

  void write_role(GenerationChoice& choice) { write_frame(choice, "", true, nullptr); }
  // Includes the log-probabilities and ids not yet written.
  void write_text(GenerationChoice& choice, const std::string& text) {
    write_frame(choice, text, false, nullptr);
  }
  // For each call an event with its name, then one with its arguments.
  void write_calls(const GenerationChoice& choice, const std::vector<ToolCallDelta::Call>& calls);
  void write_finish(GenerationChoice& choice) {
    write_frame(choice, "", false, choice.reported_finish());
  }
  void end();

 private:
  void write_frame(GenerationChoice& choice, const std::string& text, bool role,
                   const char* finish);
  void write_call(const GenerationChoice& choice, const ToolCallDelta::Call& call, bool begins);
  void write_new_ids(JsonWriter& json, GenerationChoice& choice) const;
  void write_usage_so_far(JsonWriter& json) const;

  const ResponseContext& response_;
  const Usage& usage_;
  std::string& frames_;
};

}  // namespace trireme
