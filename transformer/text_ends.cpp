#include "transformer/text_ends.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

Json object_in(const fs::path& file) {
  std::error_code ignored;
  const Json json = fs::is_regular_file(file, ignored) ? parse_json_file(file.string()) : Json();
  return json.is_object() ? json : Json::object();
}

void add_ends(const Json& json, int64_t vocab_size, std::vector<int32_t>& ends) {
  const Json value = json.value("eos_token_id", Json());
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= std::min<int64_t>(vocab_size, INT32_MAX))
      continue;
    const auto end = id.get<int32_t>();
    if (std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  }
}

}  // namespace

std::vector<int32_t> text_ends(const std::string& directory, int64_t vocab_size) {
  std::vector<int32_t> ends;
  const Json config = object_in(fs::path(directory) / "config.json");
  if (config.contains("model_type")) {
    add_ends(config, vocab_size, ends);
    // Of a model that sees images too.
    const Json text = config.value("text_config", Json());
    if (text.is_object()) add_ends(text, vocab_size, ends);
  }
  add_ends(object_in(fs::path(directory) / "generation_config.json"), vocab_size, ends);
  return ends;
}

std::vector<int32_t> tokenizer_ends(const std::string& tokenizer, int64_t vocab_size) {
  if (tokenizer.empty() || tokenizer == "byte" || tokenizer.ends_with(".gguf")) return {};
  std::error_code ignored;
  const fs::path path = tokenizer;
  return text_ends((fs::is_directory(path, ignored) ? path : path.parent_path()).string(),
                   vocab_size);
}

}  // namespace trireme
