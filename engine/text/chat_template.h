// Chat templates: the Jinja2 programs by which models tell how a conversation is written out
// (engine/text/chat_template_sources.h). An own interpreter, whose templates reach nothing but
// what they are given, within limits of steps, depth and size.
//
// The language is what HuggingFace's transformers set up: trim_blocks, lstrip_blocks, break and
// continue, {% generation %}, macros and call blocks, with, block, filter and recursive for; the
// filters, tests and methods of engine/text/jinja; range, dict, namespace, cycler, joiner,
// raise_exception and strftime_now. Refused by name:
// other templates (include, import, extends), autoescape, do, and what changes a list or dict.
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
  int64_t steps = 1'000'000;  // nodes visited, elements walked over, and each 256 bytes of texts
  int depth = 100;
  int64_t output = 64 << 20;  // bytes
};

struct RenderedChat {
  std::string text;
  // Bytes of the text that stood between {% generation %} tags: what an assistant wrote. None where
  // some of it went through a macro, a filter or a variable: then the template tells nothing.
  std::vector<std::pair<size_t, size_t>> generated;
  // Those of "tools" and "documents" that were given and that the template did not look at.
  std::vector<std::string> unread = {};
};

// A model's chat templates: one as a rule, else that which chosen_chat_template() names.
class ChatTemplate {
 public:
  // InputError with the line where the template is not understood; of several only where that is
  // the default, and for others when they are to render.
  explicit ChatTemplate(std::string_view source);
  explicit ChatTemplate(const ChatTemplateSources& sources);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // variables: an object: "messages", "tools", "add_generation_prompt", "bos_token" ...; "tools"
  // and "documents" are null unless they are given, as in transformers. "chat_template" is the name
  // of one of several templates and no variable. now: what strftime_now tells. InputError for what
  // the template refuses (raise_exception) and for its faults. May be called by several threads.
  RenderedChat render(const nlohmann::ordered_json& variables, const TemplateLimits& limits = {},
                      std::time_t now = std::time(nullptr)) const;
  // Whether the template that renders these variables reads a member of messages of this name
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
