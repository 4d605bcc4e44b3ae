#include "serving/structured/tool_call_parser.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr size_t kLongestName = 256;  // bytes of a member's or tool's name

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

ToolCallParser::ToolCallParser(ToolCallOptions options)
    : options_(std::move(options)), marker_(tool_marker(options_.format)) {
  if (options_.only_calls && options_.format != ToolFormat::kHermes) state_ = State::kBefore;
}

void ToolCallParser::push(std::string_view text, ToolCallDelta& delta) {
  for (const char c : text) switch (state_) {
      case State::kContent: content(c, delta); break;
      case State::kBefore: before(c, delta); break;
      case State::kObject: object(c, delta); break;
      case State::kAfterCall: after_call(c, delta); break;
    }
}

void ToolCallParser::finish(ToolCallDelta& delta) {
  if (state_ == State::kObject && !named_) give_up(delta);
  if (state_ == State::kBefore && !raw_.empty() && !options_.only_calls && calls_ == 0)
    delta.content += raw_;
  // Trailing white space belongs to the calls, if there are any.
  const size_t spaces =
      static_cast<size_t>(std::ranges::find_if_not(held_, is_space) - held_.begin());
  delta.content += calls_ > 0 ? held_.substr(spaces) : held_;
  held_.clear();
  state_ = State::kContent;
}

void ToolCallParser::content(char c, ToolCallDelta& delta) {
  if (options_.format == ToolFormat::kNone) {
    delta.content += c;
    return;
  }
  held_ += c;
  if (options_.either && said_) {
    delta.content += std::exchange(held_, {});
    return;
  }
  for (;;) {
    const size_t begin =
        static_cast<size_t>(std::ranges::find_if_not(held_, is_space) - held_.begin());
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (rest.empty()) return;
    const bool object = options_.format == ToolFormat::kLlama3 && rest == "{";
    const bool list = options_.format == ToolFormat::kMistral && options_.either && rest == "[";
    if (!said_ && (object || list)) {
      raw_ = std::exchange(held_, {});
      raw_.pop_back();
      bare_ = true;
      state_ = State::kBefore;
      return before(c, delta);
    }
    if (rest == marker_) {
      raw_ = std::exchange(held_, {});
      bare_ = false;
      state_ = State::kBefore;
      return;
    }
    if (std::string_view(marker_).starts_with(rest)) return;
    // Reports content up to the next possible start of a marker.
    size_t end = begin + 1;
    while (end < held_.size() && held_[end] != marker_[0] && !is_space(held_[end])) ++end;
    delta.content.append(held_, 0, end);
    said_ = true;
    held_.erase(0, end);
  }
}

// Between a marker or call and the next object.
void ToolCallParser::before(char c, ToolCallDelta& delta) {
  raw_ += c;
  if (is_space(c)) return;
  const bool list = options_.format == ToolFormat::kMistral;
  if (list && (c == '[' || c == ',')) return;
  if (c == '{') {
    depth_ = 0;
    quoted_ = escaped_ = named_ = false;
    key_.clear();
    value_.clear();
    arguments_.clear();
    spaces_.clear();
    has_arguments_ = false;
    skipped_ = !options_.parallel && calls_ > 0;
    state_ = State::kObject;
    raw_.pop_back();
    return object(c, delta);
  }
  if (list && c == ']') {
    if (calls_ == 0) return give_up(delta);
    state_ = State::kContent;
    raw_.clear();
    return;
  }
  if (options_.format == ToolFormat::kLlama3 && c == ';') return;
  // No call: the marker and the text after it are content, unless calls precede them.
  state_ = State::kContent;
  if (calls_ == 0) {
    delta.content += raw_;
    said_ = true;
  } else {
    held_ = std::string(1, c);
  }
  raw_.clear();
}

void ToolCallParser::after_call(char c, ToolCallDelta&) {
  raw_ += c;
  const size_t begin = static_cast<size_t>(std::ranges::find_if_not(raw_, is_space) - raw_.begin());
  const std::string_view rest = std::string_view(raw_).substr(begin);
  const std::string_view end = tool_end(options_.format);
  if (end.starts_with(rest) && rest != end) return;
  state_ = State::kContent;
  if (rest != end) held_ = std::string(rest);
  raw_.clear();
}

void ToolCallParser::object(char c, ToolCallDelta& delta) {
  if (!named_) raw_ += c;
  const bool at_members = depth_ == 1 && !quoted_;
  if (escaped_) {
    escaped_ = false;
  } else if (quoted_) {
    if (c == '\\') escaped_ = true;
    if (c == '"') quoted_ = false;
  } else if (c == '"') {
    quoted_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
    if (depth_ == 1) {
      is_key_ = true;
      return;
    }
  } else if (c == '}' || c == ']') {
    --depth_;
    if (depth_ == 0) {
      end_value(delta);
      return end_object(delta);
    }
  }
  if (at_members && c == ',') {
    end_value(delta);
    is_key_ = true;
    key_.clear();
    return;
  }
  if (at_members && is_key_ && c == ':') {
    is_key_ = false;
    return;
  }
  member(c, delta);
}

// A byte of a member's name or value.
void ToolCallParser::member(char c, ToolCallDelta& delta) {
  if (is_key_) {
    if (!is_space(c) || quoted_) key_ += c;
    if (key_.size() > kLongestName) give_up(delta);
    return;
  }
  if (key_ == R"("name")") {
    if (named_) return;
    if (!is_space(c) || quoted_) value_ += c;
    if (value_.size() > kLongestName) give_up(delta);
    return;
  }
  if (!is_arguments() || has_arguments_) return;
  // White space around a value is not reported.
  if (is_space(c) && !quoted_) {
    spaces_ += c;
    return;
  }
  if (!arguments_.empty()) {
    for (const char space : spaces_) argument(space, delta);
  }
  spaces_.clear();
  argument(c, delta);
}

bool ToolCallParser::is_arguments() const {
  return key_ == R"("arguments")" || key_ == R"("parameters")";
}

void ToolCallParser::argument(char c, ToolCallDelta& delta) {
  if (named_) {
    if (arguments_.empty()) arguments_ = "told";
    return append_arguments(std::string_view(&c, 1), delta);
  }
  arguments_ += c;
}

bool ToolCallParser::is_call(const std::string& name) const {
  return !name.empty() &&
         (!bare_ || std::ranges::find(options_.names, name) != options_.names.end());
}

void ToolCallParser::end_value(ToolCallDelta& delta) {
  spaces_.clear();
  has_arguments_ = has_arguments_ || (is_arguments() && !arguments_.empty());
  if (key_ != R"("name")" || named_) return;
  // Tool names need no escapes: letters, digits, _ and -.
  const bool is_string = value_.size() > 2 && value_.front() == '"' && value_.back() == '"';
  const std::string name = is_string ? value_.substr(1, value_.size() - 2) : "";
  if (!is_call(name)) return give_up(delta);
  named_ = true;
  raw_.clear();
  if (skipped_) return;
  delta.calls.push_back({.index = calls_++, .name = name});
  said_ = true;
  if (!arguments_.empty()) append_arguments(arguments_, delta);
}

void ToolCallParser::append_arguments(std::string_view arguments, ToolCallDelta& delta) {
  if (skipped_) return;
  const int64_t index = calls_ - 1;
  if (delta.calls.empty() || delta.calls.back().index != index || !delta.calls.back().name.empty())
    delta.calls.push_back({.index = index});
  delta.calls.back().arguments += arguments;
}

void ToolCallParser::end_object(ToolCallDelta& delta) {
  if (state_ != State::kObject) return;  // given up
  if (!named_) return give_up(delta);
  if (arguments_.empty()) append_arguments("{}", delta);
  raw_.clear();
  state_ = options_.format == ToolFormat::kHermes ? State::kAfterCall : State::kBefore;
}

// Not a call: reports the text as content, unchanged.
void ToolCallParser::give_up(ToolCallDelta& delta) {
  delta.content += raw_;
  said_ = true;
  raw_.clear();
  state_ = State::kContent;
}

}  // namespace trireme
