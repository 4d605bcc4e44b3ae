// Finds calls of tools in a text while it comes: what is no call is content. Wherever the pieces of
// the text end, the pieces told add up to the same.
//
// A call is told when its name is known; its arguments follow as they are written, byte for byte.
// They are the first of the members "arguments" and "parameters": a further one cannot take back
// what has been told, and is left out. What is held back: what may begin a marker, white space
// before one, an object until its name is known. What looked like a call and has no name is content
// after all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serving/structured/tool_format.h"

namespace trireme {

struct ToolCallOptions {
  ToolFormat format = ToolFormat::kNone;  // kNone: all is content
  bool only_calls = false;  // the text was made by tool_call_grammar(): it has no content
  bool parallel = true;     // else all but the first are left out
  std::vector<std::string> names =
      {};  // of the tools: an object without a marker that begins a text calls one of them
  bool either = false;  // the text is content without calls, or was made by it
};

struct ToolCallDelta {
  struct Call {
    int64_t index = 0;
    std::string name = {};  // not empty: it begins
    std::string arguments = {};
  };
  std::string content = {};
  std::vector<Call> calls = {};
};

class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallOptions options);

  void push(std::string_view text, ToolCallDelta& delta);
  void finish(ToolCallDelta& delta);  // there is no more text
  int64_t calls() const { return calls_; }

 private:
  enum class State { kContent, kBefore, kObject, kBehind };
  void content(char c, ToolCallDelta& delta);
  void before(char c, ToolCallDelta& delta);
  void behind(char c, ToolCallDelta& delta);
  void object(char c, ToolCallDelta& delta);
  void member(char c, ToolCallDelta& delta);
  void end_value(ToolCallDelta& delta);
  void end_object(ToolCallDelta& delta);
  void argument(char c, ToolCallDelta& delta);
  void tell(std::string_view arguments, ToolCallDelta& delta);
  void give_up(ToolCallDelta& delta);
  bool is_call(const std::string& name) const;
  bool is_arguments() const;  // the member that is being read

  ToolCallOptions options_;
  std::string marker_;
  State state_ = State::kContent;
  int64_t calls_ = 0;
  bool said_ = false;  // content other than white space has been told
  std::string held_;   // of the content: white space, then what may begin the marker
  // Of the object that is being read.
  std::string raw_;  // as it came, with what led to it
  int depth_ = 0;
  bool quoted_ = false, escaped_ = false, is_key_ = false, named_ = false;
  bool bare_ = false;           // no marker led to it
  bool skipped_ = false;        // a further call where there may be one only
  bool has_arguments_ = false;  // a member with them is complete
  std::string key_, value_, arguments_, spaces_;
};

}  // namespace trireme
