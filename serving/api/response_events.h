// Events of a streaming response.
//
// Order of the events: for each choice its role (chats only), pieces of text and tool calls, and
// the finish_reason, where the choices may be interleaved; then the usage, if requested, without
// choices; then "[DONE]". An error ends the stream with an event that contains it, without
// "[DONE]".
#pragma once

#include <string>
#include <vector>

#include "serving/api/generation_choice.h"
#include "serving/api/usage.h"

namespace trireme {

// Writer of the events for one output of the engine; appends them in the order of the calls.
class ResponseEvents {
 public:
  // All must outlive this object. usage: of the response so far. Events are appended to `frames`
  // (sse_frame.h).
  ResponseEvents(const ResponseContext& response, const Usage& usage, std::string& frames)
      : response_(response), usage_(usage), frames_(frames) {}

  void write_role(GenerationChoice& choice) { write_frame(choice, "", true, nullptr); }
  // Writes a piece of text, with the log-probabilities and ids that are not written yet.
  void write_text(GenerationChoice& choice, const std::string& text) {
    write_frame(choice, text, false, nullptr);
  }
  // Writes for each piece of a tool call an event with its name, if it begins the call, then one
  // with its arguments, if it has any.
  void write_calls(const GenerationChoice& choice, const std::vector<ToolCallDelta::Call>& calls);
  // Writes finish_reason and stop_reason, with the log-probabilities and ids that are not written
  // yet. The choice must have ended.
  void write_finish(GenerationChoice& choice) {
    write_frame(choice, "", false, choice.reported_finish());
  }
  void end();  // writes the usage, if requested, and "[DONE]"

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
