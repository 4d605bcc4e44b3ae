// Chat templates: Jinja2 programs that render a conversation as a model's input text
// (engine/text/chat_template_sources.h). They run in an interpreter of our own, with access only to
// the variables passed to them, and with limits of steps, depth and size.
//
// The language is the one configured by HuggingFace's transformers: trim_blocks, lstrip_blocks,
// break and continue, {% generation %}, macros and call blocks, with, block, filter and recursive
// for; the filters, tests and methods of engine/text/jinja; range, dict, namespace, cycler, joiner,
// raise_exception and strftime_now. Refused by name: other templates (include, import, extends),
// autoescape, do, and methods that modify a list or dict.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/chat_template_sources.h"

namespace trireme {

struct TemplateLimits {
  int64_t steps = 1'000'000;  // nodes visited, elements iterated over, and each 256 bytes of text
  int depth = 100;            // of nested calls and blocks
  int64_t output = 64 << 20;  // bytes of the text, and of any value
};

struct RenderedChat {
  std::string text;
  // Byte ranges of the text between {% generation %} tags: the assistant's output. Empty if part of
  // it was captured by a macro, a filter or a variable, because its position is then unknown.
  std::vector<std::pair<size_t, size_t>> generated;
  // "tools" and "documents", as far as they were passed, not empty, and not read by the template.
  std::vector<std::string> unread = {};
};

// Chat templates of a model: usually one; else chosen_chat_template() selects one by name.
class ChatTemplate {
 public:
  // Throws InputError with the line if the template cannot be parsed. Of several, only the default
  // one is checked here, the others when they render.
  explicit ChatTemplate(std::string_view source);
  explicit ChatTemplate(const ChatTemplateSources& sources);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Renders the template. variables: an object with "messages", "tools", "add_generation_prompt",
  // "bos_token" and so on; "tools" and "documents" are null unless given, as in transformers.
  // "chat_template" names one of several templates and is not a variable. now: the time that
  // strftime_now formats. Throws InputError if the template refuses its input (raise_exception),
  // fails or exceeds `limits`, and if no template matches (chosen_chat_template()). May be called
  // by several threads.
  RenderedChat render(const nlohmann::ordered_json& variables, const TemplateLimits& limits = {},
                      std::time_t now = std::time(nullptr)) const;
  // Returns whether the template selected for these variables reads a message member of this name
  // (members_read()).
  bool reads_member(std::string_view name, const nlohmann::ordered_json& variables) const;
  const ChatTemplateSources& sources() const { return sources_; }

 private:
  struct Program;
  const Program& program_for(const nlohmann::ordered_json& variables) const;
  ChatTemplateSources sources_;
  std::map<std::string, std::unique_ptr<const Program>> programs_;
};

}  // namespace trireme
