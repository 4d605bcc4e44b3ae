#include "engine/text/named_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/text/gguf_roles.h"
#include "engine/text/tokenizer_config.h"

namespace trireme {
namespace {

std::string config_of(const std::string& tokenizer) {
  if (tokenizer.ends_with(".gguf")) {
    const GgufFile file(tokenizer);
    return gguf_tokenizer_config(file, gguf_tokens(file)).dump();
  }
  const std::filesystem::path given(tokenizer);
  return tokenizer_config_beside(
      (std::filesystem::is_directory(given) ? given : given.parent_path()).string());
}

}  // namespace

std::map<std::string, std::string> named_tokens(const std::string& tokenizer) {
  std::map<std::string, std::string> names;
  if (tokenizer.empty() || tokenizer == "byte") return names;
  for (const auto& [name, token] : parse_tokenizer_config(config_of(tokenizer), tokenizer).roles)
    if (token.has_value() && name != "bos_token" && name != "eos_token") names[name] = *token;
  return names;
}

}  // namespace trireme
