#include "engine/text/chat_template_sources.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/gguf.h"
#include "engine/io/input_file.h"
#include "engine/io/strict_json.h"
#include "engine/text/jinja/lexer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char *kFile = "chat_template.jinja", *kFolder = "additional_chat_templates";
constexpr std::string_view kEnding = ".jinja";
constexpr size_t kMaxTemplates = 64;

void check_count(const ChatTemplateSources& sources, const std::string& place) {
  if (sources.size() > kMaxTemplates)
    fail_input(place, " has ", sources.size(), " chat templates, at most ", kMaxTemplates,
               " are read");
}

ChatTemplateSources from_files(const fs::path& folder) {
  ChatTemplateSources out;
  for (const std::string& name : chat_template_files(folder.string())) {
    std::string key = name == kFile ? kDefaultChatTemplate : fs::path(name).filename().string();
    if (key.ends_with(kEnding)) key.resize(key.size() - kEnding.size());
    out[key] = read_small_file((folder / name).string(), kMaxChatTemplateBytes);
  }
  return out;
}

OrderedJson config_at(const std::string& path) {
  return parse_strict_json<OrderedJson>(without_python_numbers(read_small_file(path)), path);
}

// "chat_template" of tokenizer_config.json.
ChatTemplateSources from_config(const OrderedJson& config) {
  if (!config.is_object() || !config.contains("chat_template")) return {};
  const OrderedJson& found = config["chat_template"];
  if (!found.is_array()) return chat_templates_from_json(found);
  ChatTemplateSources out;
  for (const OrderedJson& one : found)
    if (one.is_object() && one.contains("name") && one["name"].is_string() &&
        one.contains("template") && one["template"].is_string())
      out[one["name"].get<std::string>()] = one["template"].get<std::string>();
  return out;
}

}  // namespace

ChatTemplateSources gguf_chat_templates(const std::string& path) {
  const std::string named = concat(kGgufChatTemplate, ".");
  ChatTemplateSources out;
  const GgufFile file(path);
  for (const auto& [key, value] : file.metadata()) {
    const auto* source = std::get_if<std::string>(&value);
    if (source == nullptr) continue;
    if (key == kGgufChatTemplate) out[kDefaultChatTemplate] = *source;
    if (key.starts_with(named)) out[key.substr(named.size())] = *source;
  }
  return out;
}

ChatTemplateSources find_chat_templates(const std::string& tokenizer) {
  if (tokenizer.empty() || tokenizer == "byte") return {};
  ChatTemplateSources found;
  if (tokenizer.ends_with(".gguf") && fs::is_regular_file(tokenizer))
    found = gguf_chat_templates(tokenizer);
  const fs::path folder =
      fs::is_directory(tokenizer) ? fs::path(tokenizer) : fs::path(tokenizer).parent_path();
  std::erase_if(found, [](const auto& named) { return named.second.empty(); });
  if (found.empty()) found = from_files(folder);
  const std::string config = (folder / "tokenizer_config.json").string();
  if (found.empty() && is_input_file(config)) found = from_config(config_at(config));
  std::erase_if(found, [](const auto& named) { return named.second.empty(); });
  check_count(found, tokenizer);
  return found;
}

ChatTemplateSources chat_templates_of(const std::string& tokenizer) {
  ChatTemplateSources found = find_chat_templates(tokenizer);
  if (!found.empty()) return found;
  fail_input(tokenizer,
             " has no chat template: neither chat_template.jinja nor \"chat_template\" in "
             "tokenizer_config.json",
             tokenizer.ends_with(".gguf") ? ", nor tokenizer.chat_template in the file" : "");
}

ChatTemplateSources read_chat_templates(const std::string& given, const ChatTemplateSources& own) {
  if (const auto named = own.find(given); named != own.end())
    return {{kDefaultChatTemplate, named->second}};
  if (fs::is_directory(given)) return chat_templates_of(given);
  if (!own.empty() && given.find('/') == std::string::npos && !fs::exists(given))
    fail_input("\"", given, "\" is neither a file nor a chat template of the model, which has ",
               chat_template_names(own));
  return {{kDefaultChatTemplate, read_small_file(given)}};
}

std::string chat_template_names(const ChatTemplateSources& sources) {
  std::string names;
  for (const auto& [name, source] : sources)
    names += concat(names.empty() ? "\"" : ", \"", name, "\"");
  return names;
}

std::string chosen_chat_template(const ChatTemplateSources& sources, bool has_tools,
                                 const std::string& asked) {
  if (!asked.empty()) {
    if (sources.contains(asked)) return asked;
    fail_input("chat_template \"", asked.substr(0, 64),
               "\" is not a chat template of the model, which has ", chat_template_names(sources));
  }
  if (has_tools && sources.contains(kToolUseChatTemplate)) return kToolUseChatTemplate;
  if (sources.contains(kDefaultChatTemplate)) return kDefaultChatTemplate;
  fail_input(sources.size() == 1 ? "the model's only chat template is not the default: name "
                                 : "the model has several chat templates and none is the default: "
                                   "name one of ",
             chat_template_names(sources), " as chat_template");
}

std::vector<std::string> members_read(const std::string& source) {
  std::set<std::string> names;
  bool follows_dot = false;
  for (const jinja::Token& token : jinja::read_tokens(source)) {
    if (token.kind == jinja::TokenKind::kString ||
        (follows_dot && token.kind == jinja::TokenKind::kName))
      names.insert(token.text);
    follows_dot = token.kind == jinja::TokenKind::kSymbol && token.text == ".";
  }
  return {names.begin(), names.end()};
}

OrderedJson chat_templates_to_json(const ChatTemplateSources& sources) {
  if (sources.empty()) return "";
  if (sources.size() == 1 && sources.begin()->first == kDefaultChatTemplate)
    return sources.begin()->second;
  OrderedJson out = OrderedJson::object();
  for (const auto& [name, source] : sources) out[name] = source;
  return out;
}

ChatTemplateSources chat_templates_from_json(const OrderedJson& json) {
  ChatTemplateSources out;
  if (json.is_string() && !json.get_ref<const std::string&>().empty())
    out[kDefaultChatTemplate] = json.get<std::string>();
  if (json.is_object())
    for (const auto& [name, source] : json.items())
      if (source.is_string()) out[name] = source.get<std::string>();
  return out;
}

OrderedJson chat_templates_to_list(const ChatTemplateSources& sources) {
  OrderedJson out = OrderedJson::array();
  for (const auto& [name, source] : sources) out.push_back({{"name", name}, {"template", source}});
  return out;
}

void write_chat_template_files(const ChatTemplateSources& sources, const std::string& directory) {
  if (sources.empty()) return;
  std::error_code ignored;
  const bool as_files = are_names_of_files(sources);
  if (!as_files) {
    const std::string path = concat(directory, "/tokenizer_config.json");
    OrderedJson config = fs::exists(path, ignored) ? config_at(path) : OrderedJson::object();
    // Removes Python's NaN and Infinity, which JSON lacks: as lengths they mean no bound.
    for (auto at = config.begin(); at != config.end();)
      at = *at == "NaN" || *at == "Infinity" || *at == "-Infinity" ? config.erase(at)
                                                                   : std::next(at);
    config["chat_template"] = chat_templates_to_list(sources);
    write_file_atomically(path, config.dump(2) + "\n");
  }
  for (const std::string& name : chat_template_files(directory))
    fs::remove(fs::path(directory) / name, ignored);
  if (!as_files) return;
  for (const auto& [name, source] : sources) {
    const std::string file = chat_template_file(name);
    if (file != kFile) fs::create_directory(fs::path(directory) / kFolder, ignored);
    write_file_atomically(concat(directory, "/", file), source);
  }
}

bool are_names_of_files(const ChatTemplateSources& sources) {
  return std::ranges::all_of(sources, [](const auto& named) {
    const std::string& name = named.first;
    return !name.empty() && name.front() != '.' && name.size() <= 128 &&
           std::ranges::none_of(name, [](char c) {
             return c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' ';
           });
  });
}

std::string chat_template_file(const std::string& name) {
  return name == kDefaultChatTemplate ? kFile : concat(kFolder, "/", name, kEnding);
}

std::vector<std::string> chat_template_files(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(directory) / kFolder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kEnding) && name.size() > kEnding.size() && entry.is_regular_file(ignored))
      out.push_back(concat(kFolder, "/", name));
  }
  std::ranges::sort(out);
  if (is_input_file((fs::path(directory) / kFile).string())) out.emplace_back(kFile);
  return out;
}

}  // namespace trireme
