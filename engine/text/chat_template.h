// Chat templates: the Jinja2 programs by which models tell how a conversation is written out
// (tokenizer_config.json, "chat_template"). An own interpreter, whose templates reach nothing but
// what they are given, within limits of steps, depth and size.
//
// The language is what HuggingFace's transformers set up: trim_blocks, lstrip_blocks, break and
// continue, {% generation %}, macros and call blocks, with, block, filter and recursive for; the
// filters, tests and methods of engine/text/jinja; range, dict, namespace, cycler, joiner,
// raise_exception and strftime_now. Refused by name:
// other templates (include, import, extends), autoescape, do, and what changes a list or dict.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

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
};

// The source of a model's template, by its tokenizer as load_tokenizer() takes it: that in a .gguf,
// else chat_template.jinja in the directory (or beside the tokenizer file), else "chat_template" of
// its tokenizer_config.json, of several the one named "default".
std::string find_chat_template(
    const std::string& tokenizer);                           // "" without one, of "byte" and of ""
std::string chat_template_of(const std::string& tokenizer);  // InputError without one
// What a user names as a template: a file that is one, or a tokenizer's directory that has one
// (InputError if not).
std::string read_chat_template(const std::string& path);

class ChatTemplate {
 public:
  // InputError with the line where the template is not understood.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // variables: an object: "messages", "tools", "add_generation_prompt", "bos_token" ...; "tools"
  // and "documents" are null unless they are given, as in transformers. now: what strftime_now
  // tells. InputError for what the template refuses (raise_exception) and for its faults. May be
  // called by several threads.
  RenderedChat render(const nlohmann::ordered_json& variables, const TemplateLimits& limits = {},
                      std::time_t now = std::time(nullptr)) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace trireme
