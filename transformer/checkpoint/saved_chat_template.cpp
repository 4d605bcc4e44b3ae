#include "transformer/checkpoint/saved_chat_template.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/sharded_checkpoint.h"
#include "engine/text/conversation.h"
#include "engine/text/gguf_tokenizer.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/lineage.h"
#include "transformer/formats/model_source.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Adds the end-of-turn tokens to generation_config.json, where other programs look for stop tokens.
void add_ends_of_turn(const fs::path& directory, const ChatTemplateSources& chat) {
  const std::string file = (directory / "generation_config.json").string();
  std::error_code ignored;
  if (!fs::exists(file, ignored) || (!fs::exists(directory / "tokenizer.json", ignored) &&
                                     !fs::exists(directory / "tokenizer.model", ignored)))
    return;
  const auto tokenizer = load_tokenizer(directory.string());
  const ChatTemplate source(chat);
  Json json = parse_published_json_file(file);
  if (!json.is_object()) return;
  const Json known = json.value("eos_token_id", Json());
  Json ends = known.is_array() ? known : Json::array();
  if (known.is_number_integer()) ends.push_back(known);
  const size_t before = ends.size();
  for (const int32_t end : ConversationWriter(source, *tokenizer).ends_of_turn())
    if (std::ranges::find(ends, Json(end)) == ends.end()) ends.push_back(end);
  if (ends.size() == before) return;
  json["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  write_file_atomically(file, json.dump(2) + "\n");
}

}  // namespace

ChatTemplateSources recorded_chat_templates(const std::string& path) {
  if (is_peft_adapter(path)) return find_chat_templates(path);
  const std::string checkpoint = newest_checkpoint_at(path);
  if (checkpoint.empty()) return {};
  return read_lineage(CheckpointReader(checkpoint)).chat_templates;
}

ChatTemplateSources chat_templates_of_model(const std::string& path, const std::string& tokenizer) {
  ChatTemplateSources of_run = recorded_chat_templates(path);
  return of_run.empty() ? find_chat_templates(tokenizer) : of_run;
}

GgufMetadata gguf_tokenizer_with_templates(const ModelSource& source, const std::string& path) {
  GgufMetadata words = gguf_tokenizer_metadata(source.tokenizer(), source.config().vocab_size);
  if (!words.empty())
    set_gguf_chat_templates(chat_templates_of_model(path, source.tokenizer()), words);
  return words;
}

void write_chat_templates(const ChatTemplateSources& chat, const std::string& directory) {
  if (chat.empty()) return;
  write_chat_template_files(chat, directory);
  add_ends_of_turn(directory, chat);
}

}  // namespace trireme
