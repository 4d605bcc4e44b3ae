#include "training/finetune_origin.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/sharded_checkpoint.h"
#include "engine/text/conversation.h"
#include "engine/text/gguf_tokenizer.h"
#include "training/checkpoint_model.h"
#include "training/finetune_data.h"
#include "training/run_directory.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBeginning = 1 << 20, kSample = 4096, kSamples = 64;  // bytes, and how many

void add_bytes(ChecksumStream& sum, std::ifstream& in, int64_t begin, int64_t size) {
  std::vector<char> bytes(static_cast<size_t>(size));
  in.seekg(begin);
  in.read(bytes.data(), size);
  sum.update(std::as_bytes(std::span(bytes.data(), static_cast<size_t>(in.gcount()))));
  in.clear();
}

void add_file(ChecksumStream& sum, const fs::path& file, bool whole) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  std::ifstream in(file, std::ios::binary);
  if (error || !in) fail_input("cannot read ", file.string());
  const std::string name = file.filename().string();
  sum.update(std::as_bytes(std::span(name)));
  sum.update(std::as_bytes(std::span(&size, 1)));
  add_bytes(sum, in, 0, whole ? size : std::min(size, kBeginning));
  if (whole || size <= kBeginning) return;
  for (int64_t i = 1; i <= kSamples; ++i)
    add_bytes(sum, in, (size - kSample) / kSamples * i, kSample);
}

bool depends_on_base(const RunConfig& config) {
  return config.finetune.lora.enabled() || learns_from_pairs(config.finetune);
}

std::string shown(const std::string& path, const std::string& identity) {
  return concat(path, " (", identity, ")");
}

// Other programs stop where this file says.
void add_end_of_turn(const fs::path& directory, const std::string& chat) {
  const std::string file = (directory / "generation_config.json").string();
  std::error_code ignored;
  if (!fs::exists(file, ignored) || (!fs::exists(directory / "tokenizer.json", ignored) &&
                                     !fs::exists(directory / "tokenizer.model", ignored)))
    return;
  const auto tokenizer = load_tokenizer(directory.string());
  const ChatTemplate source(chat);
  const int32_t end = ConversationWriter(source, *tokenizer).end_of_turn();
  Json json = parse_json_file(file);
  if (end < 0 || !json.is_object()) return;
  const Json known = json.value("eos_token_id", Json());
  Json ends = known.is_array() ? known : Json::array();
  if (known.is_number_integer()) ends.push_back(known);
  if (std::ranges::find(ends, Json(end)) != ends.end()) return;
  ends.push_back(end);
  json["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  write_file_atomically(file, json.dump(2) + "\n");
}

}  // namespace

std::string model_identity(const ModelSource& source) {
  ChecksumStream sum;
  for (const std::string& file : source.tensors().files()) {
    const fs::path path = file;
    const bool manifest = path.filename() == kManifestName;
    if (manifest || !fs::exists(path.parent_path() / kManifestName)) add_file(sum, path, manifest);
  }
  return checksum_text(sum.value());
}

FinetuneOrigin finetune_origin(const RunConfig& config, const FinetuneData& data) {
  FinetuneOrigin origin;
  origin.chat_template = data.chat_template;
  origin.examples = data.train_set->fingerprint();
  origin.data = data.summary;
  if (!depends_on_base(config)) return origin;
  origin.base = config.checkpoint.load;
  std::error_code ignored;
  const fs::path base = fs::absolute(origin.base, ignored).lexically_normal();
  const fs::path folder = fs::absolute(config.checkpoint.save, ignored).lexically_normal();
  origin.base_beside = base.lexically_relative(folder).string();
  origin.base_identity = model_identity(*open_any_model(origin.base));
  return origin;
}

Json origin_to_json(const FinetuneOrigin& origin) {
  return {{"chat_template", origin.chat_template}, {"base", origin.base},
          {"base_beside", origin.base_beside},     {"base_identity", origin.base_identity},
          {"examples", origin.examples},           {"data", origin.data}};
}

FinetuneOrigin origin_of(const CheckpointReader& reader) {
  const Json state = reader.state();
  FinetuneOrigin origin;
  if (!state.is_object() || !state.contains("finetune") || !state["finetune"].is_object())
    return origin;
  const Json& json = state["finetune"];
  const auto read = [&](const char* name, std::string& value) {
    if (json.contains(name) && json[name].is_string()) value = json[name].get<std::string>();
  };
  read("chat_template", origin.chat_template);
  read("base", origin.base);
  read("base_beside", origin.base_beside);
  read("base_identity", origin.base_identity);
  read("examples", origin.examples);
  read("data", origin.data);
  return origin;
}

void check_same_origin(const std::string& checkpoint, const FinetuneOrigin& saved,
                       const FinetuneOrigin& now) {
  if (!saved.examples.empty() && saved.examples != now.examples)
    fail_input(checkpoint, " has learned from other examples: then ", saved.data, " (",
               saved.examples, "), now ", now.data, " (", now.examples,
               "); put the files, the tokenizer and the chat template back as they were, or start "
               "another run with checkpoint.load ",
               checkpoint, " and another output_dir");
  if (!saved.base_identity.empty() && saved.base_identity != now.base_identity)
    fail_input(checkpoint, " was trained from ", shown(saved.base, saved.base_identity),
               ", and checkpoint.load is another model, ", shown(now.base, now.base_identity),
               "; name that one, or use another output_dir");
}

std::string find_base(const std::string& checkpoint, const RunConfig& run,
                      const FinetuneOrigin& origin) {
  const fs::path saved = fs::absolute(checkpoint).lexically_normal().parent_path();
  const std::array<fs::path, 3> places{
      run.checkpoint.load,
      origin.base_beside.empty() ? fs::path() : (saved / origin.base_beside).lexically_normal(),
      // Checkpoints of earlier versions: from where the run's folder lies.
      saved.parent_path().parent_path() / run.checkpoint.load};
  std::error_code ignored;
  for (const fs::path& place : places)
    if (!place.empty() && fs::exists(place, ignored)) return place.string();
  return run.checkpoint.load;
}

void check_base(const std::string& checkpoint, const FinetuneOrigin& origin,
                const ModelSource& base) {
  if (origin.base_identity.empty()) return;
  const std::string identity = model_identity(base);
  if (identity == origin.base_identity) return;
  fail_input(checkpoint, ": its adapters were trained beside ",
             shown(origin.base, origin.base_identity), ", and ", shown(base.path(), identity),
             " is another model; give that base, or train adapters for this one");
}

std::unique_ptr<ModelSource> open_base(const std::string& checkpoint, const RunConfig& run) {
  const FinetuneOrigin origin = origin_of(CheckpointReader(checkpoint));
  std::unique_ptr<ModelSource> base = open_any_model(find_base(checkpoint, run, origin));
  check_base(checkpoint, origin, *base);
  return base;
}

std::string newest_checkpoint_at(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !fs::is_directory(path, ignored) || is_model_source(path)) return "";
  std::string place = checkpoint_place(path);
  if (fs::exists(fs::path(place) / kManifestName, ignored)) return place;
  return find_newest_whole(place, false).directory;
}

std::string chat_template_of_run(const std::string& path) {
  const std::string checkpoint = newest_checkpoint_at(path);
  return checkpoint.empty() ? "" : origin_of(CheckpointReader(checkpoint)).chat_template;
}

std::string chat_template_of_model(const std::string& path, const std::string& tokenizer) {
  if (std::string of_run = chat_template_of_run(path); !of_run.empty()) return of_run;
  return tokenizer.empty() || tokenizer == "byte" ? "" : find_chat_template(tokenizer);
}

GgufMetadata gguf_words(const ModelSource& source, const std::string& path) {
  GgufMetadata words = gguf_tokenizer_metadata(source.tokenizer(), source.config().vocab_size);
  if (words.empty()) return words;
  if (std::string chat = chat_template_of_model(path, source.tokenizer()); !chat.empty())
    words[kGgufChatTemplate] = std::move(chat);
  return words;
}

void write_chat_template_of_run(const std::string& path, const std::string& directory) {
  const std::string chat = chat_template_of_run(path);
  if (chat.empty()) return;
  write_file_atomically(concat(directory, "/chat_template.jinja"), chat);
  add_end_of_turn(directory, chat);
}

}  // namespace trireme
