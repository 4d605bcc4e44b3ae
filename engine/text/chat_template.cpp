#include "engine/text/chat_template.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/jinja/globals.h"

namespace trireme {
namespace {

using jinja::fail;

constexpr size_t kMostSourceBytes = 1 << 20;

// Namespaces may hold one another in a ring, which nobody else would ever free.
struct EndOfObjects {
  ~EndOfObjects() {
    for (const auto& weak : renderer.objects)
      if (const auto object = weak.lock()) object->members = {};
  }
  const jinja::Renderer& renderer;
};
}  // namespace

std::string find_chat_template(const std::string& tokenizer) {
  namespace fs = std::filesystem;
  if (tokenizer.empty() || tokenizer == "byte") return "";
  if (tokenizer.ends_with(".gguf") && fs::is_regular_file(tokenizer))
    if (std::string own = gguf_chat_template(tokenizer); !own.empty()) return own;
  const fs::path folder =
      fs::is_directory(tokenizer) ? fs::path(tokenizer) : fs::path(tokenizer).parent_path();
  const fs::path own = folder / "chat_template.jinja", config = folder / "tokenizer_config.json";
  if (fs::is_regular_file(own)) return read_small_file(own.string(), kMostSourceBytes);
  if (fs::is_regular_file(config)) {
    const auto json =
        parse_strict_json<nlohmann::json>(read_small_file(config.string()), config.string());
    const nlohmann::json found =
        json.is_object() ? json.value("chat_template", nlohmann::json()) : nlohmann::json();
    if (found.is_string()) return found.get<std::string>();
    if (found.is_array())
      for (const auto& named : found)
        if (named.is_object() && named.value("name", "") == "default" &&
            named.contains("template") && named["template"].is_string())
          return named["template"].get<std::string>();
  }
  return "";
}

std::string chat_template_of(const std::string& tokenizer) {
  std::string found = find_chat_template(tokenizer);
  if (!found.empty()) return found;
  fail_input(tokenizer,
             " has no chat template: neither chat_template.jinja nor \"chat_template\" in "
             "tokenizer_config.json",
             tokenizer.ends_with(".gguf") ? ", nor tokenizer.chat_template in the file" : "");
}

std::string read_chat_template(const std::string& path) {
  return std::filesystem::is_directory(path) ? chat_template_of(path) : read_small_file(path);
}

struct ChatTemplate::Program {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::string_view source) {
  if (source.size() > kMostSourceBytes)
    fail(concat("its source has ", source.size(), " bytes, at most ", kMostSourceBytes,
                " are read"));
  if (find_invalid_utf8(source) != source.size()) fail("its source is not valid UTF-8");
  program_ = std::make_unique<const Program>(Program{jinja::parse_template(source)});
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& variables,
                                  const TemplateLimits& limits, std::time_t now) const {
  jinja::Budget budget(limits.steps);
  jinja::Renderer renderer{.limits = {.depth = limits.depth, .output = limits.output}};
  const EndOfObjects end{renderer};
  const auto globals = std::make_shared<jinja::Scope>();
  set_globals(*globals, renderer, now);
  for (const char* absent : {"tools", "documents"}) globals->set(absent, jinja::from_json(nullptr));
  for (const auto& [name, value] : variables.items()) globals->set(name, jinja::from_json(value));
  renderer.top = std::make_shared<jinja::Scope>(globals);
  (void)jinja::run_block(program_->block, renderer, renderer.top);
  if (renderer.lost_generated) renderer.generated.clear();
  return {std::move(renderer.out), std::move(renderer.generated)};
}

}  // namespace trireme
