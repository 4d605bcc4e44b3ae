#include "engine/text/chat_template.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/jinja/nodes.h"

namespace trireme {
namespace {

using jinja::Arguments;
using jinja::fail;
using jinja::Function;
using jinja::Value;

constexpr size_t kMostSourceBytes = 1 << 20;
constexpr int64_t kMostRange = 100'000;

Value range(Arguments& a) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t n = a.positional.size();
  if (n < 1 || n > 3) fail("range wants one to three whole numbers");
  for (size_t i = 0; i < n; ++i)
    if (!a.positional[i].to_integer(bounds[n == 1 ? 1 : i])) fail("range wants whole numbers");
  const auto [begin, end, step] = bounds;
  if (step == 0) fail("range has a step of 0");
  jinja::List out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (std::ssize(out) == kMostRange)
      fail(concat("a range has more than ", kMostRange, " numbers"));
    jinja::spend(1);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return out;
}

Value dict(Arguments& a) {
  jinja::Dict out;
  if (!a.positional.empty() && a.positional[0].dict()) out = *a.positional[0].dict();
  for (auto& [name, value] : a.named) out[name] = value;
  return out;
}

Value make_namespace(Arguments& a) {
  auto out = std::make_shared<jinja::Namespace>();
  if (!a.positional.empty() && a.positional[0].dict()) out->members = *a.positional[0].dict();
  for (auto& [name, value] : a.named) out->members[name] = value;
  return out;
}

Value raise_exception(Arguments& a) {
  fail_input("the chat template refuses this conversation: ",
             a.positional.empty() ? "" : jinja::text_of(a.positional[0]));
}

Function strftime_at(std::time_t now) {
  return [now](Arguments& a) -> Value {
    const Value* format = a.find(0, "format");
    if (format == nullptr || format->string() == nullptr || format->string()->size() > 256)
      fail("strftime_now wants a format of at most 256 bytes");
    if (format->string()->empty()) return "";
    std::tm time{};
    if (localtime_r(&now, &time) == nullptr) fail("there is no date");
    char text[2048];
    return std::string(text, std::strftime(text, sizeof text, format->string()->c_str(), &time));
  };
}

}  // namespace

std::string find_chat_template(const std::string& tokenizer) {
  namespace fs = std::filesystem;
  if (tokenizer.ends_with(".gguf"))
    return GgufFile(tokenizer).get<std::string>(kGgufChatTemplate).value_or("");
  const fs::path folder =
      fs::is_directory(tokenizer) ? fs::path(tokenizer) : fs::path(tokenizer).parent_path();
  const fs::path own = folder / "chat_template.jinja", config = folder / "tokenizer_config.json";
  if (fs::is_regular_file(own)) return read_small_file(own.string(), kMostSourceBytes);
  if (!fs::is_regular_file(config)) return "";
  const auto json =
      parse_strict_json<nlohmann::json>(read_small_file(config.string()), config.string());
  const nlohmann::json found =
      json.is_object() ? json.value("chat_template", nlohmann::json()) : nlohmann::json();
  if (found.is_string()) return found.get<std::string>();
  if (found.is_array())
    for (const auto& named : found)
      if (named.is_object() && named.value("name", "") == "default" && named.contains("template") &&
          named["template"].is_string())
        return named["template"].get<std::string>();
  return "";
}

std::string chat_template_of(const std::string& tokenizer) {
  std::string found = find_chat_template(tokenizer);
  if (found.empty())
    fail_input(tokenizer,
               " has no chat template: neither chat_template.jinja nor \"chat_template\" in ",
               "tokenizer_config.json nor, in a GGUF file, ", kGgufChatTemplate);
  return found;
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
  const auto globals = std::make_shared<jinja::Scope>();
  globals->set("range", Function(range));
  globals->set("dict", Function(dict));
  globals->set("namespace", Function(make_namespace));
  globals->set("raise_exception", Function(raise_exception));
  globals->set("strftime_now", strftime_at(now));
  for (const char* absent : {"tools", "documents"}) globals->set(absent, jinja::from_json(nullptr));
  for (const auto& [name, value] : variables.items()) globals->set(name, jinja::from_json(value));
  jinja::Budget budget(limits.steps);
  jinja::Renderer renderer{.limits = {limits.depth, limits.output}, .out = {}, .generated = {}};
  (void)jinja::run_block(program_->block, renderer, std::make_shared<jinja::Scope>(globals));
  return {std::move(renderer.out), std::move(renderer.generated)};
}

}  // namespace trireme
