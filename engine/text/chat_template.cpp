#include "engine/text/chat_template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/jinja/globals.h"

namespace trireme {
namespace {

using jinja::fail;

// Variables that a template receives only to render them.
constexpr std::array kWritten = {"tools", "documents"};

// Breaks reference cycles of namespaces, which would never be freed otherwise.
struct EndOfObjects {
  ~EndOfObjects() {
    for (const auto& weak : renderer.objects)
      if (const auto object = weak.lock()) object->members = {};
  }
  const jinja::Renderer& renderer;
};

bool is_given(const nlohmann::ordered_json& variables, const char* name) {
  return variables.contains(name) && !variables[name].is_null();
}

}  // namespace

struct ChatTemplate::Program {
  explicit Program(std::string_view source) {
    if (source.size() > kMaxChatTemplateBytes)
      fail(concat("its source has ", source.size(), " bytes, at most ", kMaxChatTemplateBytes,
                  " are read"));
    if (find_invalid_utf8(source) != source.size()) fail("its source is not valid UTF-8");
    block = jinja::parse_template(source);
    members = members_read(std::string(source));
  }
  jinja::StatementBlock block;
  std::vector<std::string> members;  // sorted
};

ChatTemplate::ChatTemplate(std::string_view source)
    : ChatTemplate(ChatTemplateSources{{kDefaultChatTemplate, std::string(source)}}) {}

ChatTemplate::ChatTemplate(const ChatTemplateSources& sources) : sources_(sources) {
  for (const auto& [name, source] : sources_) {
    try {
      programs_[name] = std::make_unique<const Program>(source);
    } catch (const InputError&) {
      if (name == kDefaultChatTemplate || sources_.size() == 1) throw;
    }
  }
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

const ChatTemplate::Program& ChatTemplate::program_for(
    const nlohmann::ordered_json& variables) const {
  std::string asked;
  if (is_given(variables, "chat_template")) {
    if (!variables["chat_template"].is_string())
      fail_input("\"chat_template\" is not a string, expected the name of a chat template");
    asked = variables["chat_template"].get<std::string>();
  }
  const std::string name = chosen_chat_template(sources_, is_given(variables, "tools"), asked);
  if (const auto found = programs_.find(name); found != programs_.end()) return *found->second;
  try {
    Program again(sources_.at(name));  // throws its error
  } catch (const InputError& error) {
    fail_input("chat template \"", name, "\": ", error.what());
  }
  TRIREME_CHECK(false, "the chat template has no parsed program");
}

bool ChatTemplate::reads_member(std::string_view name,
                                const nlohmann::ordered_json& variables) const {
  return std::ranges::binary_search(program_for(variables).members, name);
}

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& variables,
                                  const TemplateLimits& limits, std::time_t now) const {
  const Program& program = program_for(variables);
  jinja::Budget budget(limits.steps);
  jinja::Renderer renderer{.limits = {.depth = limits.depth, .output = limits.output}};
  const EndOfObjects end{renderer};
  const auto globals = std::make_shared<jinja::Scope>();
  set_globals(*globals, renderer, now);
  std::set<std::string> read;
  const auto written = std::make_shared<jinja::Scope>(globals);
  written->record_reads(&read);
  for (const char* name : kWritten) written->set(name, jinja::from_json(nullptr));
  for (const auto& [name, value] : variables.items()) {
    const bool is_written = std::ranges::find(kWritten, name) != kWritten.end();
    if (name != "chat_template")
      (is_written ? written : globals)->set(name, jinja::from_json(value));
  }
  renderer.top = std::make_shared<jinja::Scope>(written);
  (void)jinja::run_block(program.block, renderer, renderer.top);
  if (renderer.lost_generated) renderer.generated.clear();
  RenderedChat rendered{std::move(renderer.out), std::move(renderer.generated)};
  for (const char* name : kWritten)
    if (is_given(variables, name) && !variables[name].empty() && !read.contains(name))
      rendered.unread.emplace_back(name);
  return rendered;
}

}  // namespace trireme
