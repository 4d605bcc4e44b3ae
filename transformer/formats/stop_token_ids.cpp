#include "transformer/formats/stop_token_ids.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/gguf.h"
#include "engine/io/input_file.h"
#include "engine/text/tokenizer_keys.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

Json object_in(const fs::path& file) {
  const Json json =
      is_input_file(file.string()) ? parse_published_json_file(file.string()) : Json();
  return json.is_object() ? json : Json::object();
}

void add_end(int64_t id, int64_t vocab_size, std::vector<int32_t>& ends) {
  if (id < 0 || id >= std::min<int64_t>(vocab_size, INT32_MAX)) return;
  const auto end = static_cast<int32_t>(id);
  if (std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
}

void add_ends(const Json& json, int64_t vocab_size, std::vector<int32_t>& ends) {
  const Json value = json.value("eos_token_id", Json());
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& id : list)
    if (id.is_number_integer() && id >= 0 && id <= INT32_MAX)
      add_end(id.get<int64_t>(), vocab_size, ends);
}

std::vector<int32_t> gguf_ends(const std::string& path, int64_t vocab_size) {
  const GgufFile file(path);
  std::vector<int32_t> ends;
  for (const char* key : kGgufStopKeys)
    add_end(file.get<int64_t>(key).value_or(-1), vocab_size, ends);
  for (const int64_t id :
       file.get<std::vector<int64_t>>(kGgufStopTokens).value_or(std::vector<int64_t>()))
    add_end(id, vocab_size, ends);
  return ends;
}

// Objects of config.json that have token ids: the whole, and the text part of a multimodal model.
std::vector<Json> model_configs(const std::string& directory) {
  const Json config = object_in(fs::path(directory) / "config.json");
  if (!config.contains("model_type")) return {};
  const Json text = config.value("text_config", Json());
  return text.is_object() ? std::vector<Json>{config, text} : std::vector<Json>{config};
}

}  // namespace

std::vector<int32_t> stop_token_ids(const std::string& directory, int64_t vocab_size) {
  std::vector<int32_t> ends;
  for (const Json& config : model_configs(directory)) add_ends(config, vocab_size, ends);
  add_ends(object_in(fs::path(directory) / "generation_config.json"), vocab_size, ends);
  return ends;
}

std::vector<int32_t> tokenizer_stop_token_ids(const std::string& tokenizer, int64_t vocab_size) {
  if (tokenizer.empty() || tokenizer == "byte") return {};
  if (tokenizer.ends_with(".gguf")) return gguf_ends(tokenizer, vocab_size);
  std::error_code ignored;
  const fs::path path = tokenizer;
  return stop_token_ids((fs::is_directory(path, ignored) ? path : path.parent_path()).string(),
                        vocab_size);
}

std::optional<int32_t> padding_id(const std::string& directory, int64_t vocab_size) {
  for (const Json& config : model_configs(directory)) {
    const Json id = config.value("pad_token_id", Json());
    if (id.is_number_integer() && id >= 0 && id < std::min<int64_t>(vocab_size, INT32_MAX))
      return id.get<int32_t>();
  }
  return {};
}

}  // namespace trireme
