#include "training/finetune_origin.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/sharded_checkpoint.h"
#include "engine/text/conversation.h"
#include "engine/text/gguf_tokenizer.h"
#include "training/checkpoint_model.h"
#include "training/file_identity.h"
#include "training/finetune_data.h"
#include "training/run_directory.h"
#include "transformer/peft_adapter.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

fs::path from_root(const std::string& path) { return fs::absolute(path).lexically_normal(); }

// The checkpoints that a path names, the newest first.
std::vector<std::string> checkpoints_at(const std::string& path) {
  const fs::path place = checkpoint_place(path);
  std::error_code ignored;
  if (fs::exists(place / kManifestName, ignored)) return {place.string()};
  std::vector<std::pair<int64_t, std::string>> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(place, ignored)) {
    int64_t step = 0;
    if (parse_step_directory_name(entry.path().filename().string(), step) &&
        fs::exists(entry.path() / kManifestName, ignored))
      steps.emplace_back(step, entry.path().string());
  }
  std::ranges::sort(steps, std::greater<>());
  std::vector<std::string> out;
  out.reserve(steps.size());
  for (auto& [step, directory] : steps) out.push_back(std::move(directory));
  return out;
}

// find_model() of a path, of this identity where one is known; empty: there is no such model.
std::string find_identified(const std::string& path, const std::string& identity) {
  if (identity.empty()) return find_model(path);
  const bool of_others = is_model_source(path);
  for (const std::string& place : of_others ? std::vector{path} : checkpoints_at(path))
    if (model_identity(place) == identity) return find_model(place);
  return "";
}

// "CHECKPOINT was trained beside BASE (0123456789abcdef)"
std::string tie(const std::string& checkpoint, const FinetuneOrigin& origin) {
  return concat(checkpoint, " was trained beside ", origin.base, " (", origin.base_identity, ")");
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

std::string model_identity(const std::string& place) {
  ChecksumStream sum;
  if (!is_model_source(place))
    add_file_identity(sum, concat(place, "/", kManifestName), FileReading::kWhole);
  else
    for (const std::string& file : open_model_source(place)->tensors().files())
      add_file_identity(sum, file, FileReading::kSamples);
  return checksum_text(sum.value());
}

FinetuneOrigin finetune_origin(const RunConfig& config, const ResumePlan& plan,
                               const FinetuneData* data) {
  FinetuneOrigin origin;
  origin.special_tokens =
      config.finetune.enabled || !plan.weights.empty() ||
      (!plan.checkpoint.empty() && origin_of(CheckpointReader(plan.checkpoint)).special_tokens);
  if (data == nullptr) return origin;
  origin.chat_template = data->chat_template;
  origin.examples = data->train_set->fingerprint();
  origin.data = data->summary;
  if (!depends_on_base(config.finetune)) return origin;
  const fs::path base = from_root(plan.weights);
  origin.base = base.string();
  origin.base_beside = base.lexically_relative(from_root(config.checkpoint.save)).string();
  origin.base_identity = model_identity(plan.weights);
  return origin;
}

Json origin_to_json(const FinetuneOrigin& origin) {
  return {{"special_tokens", origin.special_tokens},
          {"chat_template", origin.chat_template},
          {"examples", origin.examples},
          {"data", origin.data},
          {"base", origin.base},
          {"base_beside", origin.base_beside},
          {"base_identity", origin.base_identity}};
}

FinetuneOrigin origin_of(const CheckpointReader& reader) {
  const Json state = reader.state();
  FinetuneOrigin origin;
  if (!state.is_object()) return origin;
  const bool earlier = !state.contains("origin");  // identities were others then
  const Json json = state.value(earlier ? "finetune" : "origin", Json::object());
  if (!json.is_object()) return origin;
  const auto read = [&](const char* name, std::string& value) {
    if (json.contains(name) && json[name].is_string()) value = json[name].get<std::string>();
  };
  if (json.contains("special_tokens")) origin.special_tokens = json["special_tokens"] == true;
  read("chat_template", origin.chat_template);
  read("examples", origin.examples);
  read("data", origin.data);
  read("base", origin.base);
  read("base_beside", origin.base_beside);
  if (!earlier) read("base_identity", origin.base_identity);
  return origin;
}

void check_same_examples(const std::string& checkpoint, const FinetuneOrigin& saved,
                         const FinetuneOrigin& now) {
  if (saved.examples.empty() || saved.examples == now.examples) return;
  fail_input(checkpoint, " has learned from other examples: then ", saved.data, " (",
             saved.examples, "), now ", now.data, " (", now.examples,
             "); put the files, the tokenizer and the chat template back as they were, or start "
             "another run with checkpoint.load ",
             checkpoint, " and another output_dir");
}

std::string find_base(const std::string& checkpoint, const RunConfig& run) {
  const FinetuneOrigin origin = origin_of(CheckpointReader(checkpoint));
  const fs::path saved = from_root(checkpoint).parent_path();
  std::vector<std::string> places{run.checkpoint.load, origin.base};
  if (!origin.base_beside.empty())
    places.push_back((saved / origin.base_beside).lexically_normal().string());
  // Of earlier versions: from where the run's folder lies.
  places.push_back((saved.parent_path().parent_path() / run.checkpoint.load).string());
  std::set<std::string> seen{""};
  std::string others;
  std::error_code ignored;
  for (const std::string& place : places) {
    if (!seen.insert(place).second || !fs::exists(place, ignored)) continue;
    if (std::string found = find_identified(place, origin.base_identity); !found.empty())
      return found;
    others += concat(place, " is another model, ");
  }
  if (origin.base_identity.empty()) return find_model(run.checkpoint.load);
  fail_input(tie(checkpoint, origin), ", which is not found: ", others,
             "and nothing else lies where it did; put it back, or name the place where it lies: "
             "checkpoint.load in training, trireme checkpoint merge-lora MODEL ",
             checkpoint, " OUT, trireme generate MODEL --adapter ",
             (saved.parent_path() / "adapter").string());
}

std::string find_base_at(const std::string& path, const std::string& checkpoint) {
  const FinetuneOrigin origin = origin_of(CheckpointReader(checkpoint));
  if (!fs::exists(path)) return find_model(path);  // says so
  std::string found = find_identified(path, origin.base_identity);
  if (found.empty())
    fail_input(tie(checkpoint, origin), ", and ", path,
               " is another model; give that one, or train adapters for this one");
  return found;
}

std::string newest_checkpoint_at(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !fs::is_directory(path, ignored) || is_model_source(path)) return "";
  std::string place = checkpoint_place(path);
  if (fs::exists(fs::path(place) / kManifestName, ignored)) return place;
  return find_newest_whole(place, false).directory;
}

std::string kept_chat_template(const std::string& path) {
  if (is_peft_adapter(path)) return find_chat_template(path);
  const std::string checkpoint = newest_checkpoint_at(path);
  return checkpoint.empty() ? "" : origin_of(CheckpointReader(checkpoint)).chat_template;
}

std::string chat_template_of_model(const std::string& path, const std::string& tokenizer) {
  if (std::string of_run = kept_chat_template(path); !of_run.empty()) return of_run;
  return find_chat_template(tokenizer);
}

GgufMetadata gguf_words(const ModelSource& source, const std::string& path) {
  GgufMetadata words = gguf_tokenizer_metadata(source.tokenizer(), source.config().vocab_size);
  if (words.empty()) return words;
  if (std::string chat = chat_template_of_model(path, source.tokenizer()); !chat.empty())
    words[kGgufChatTemplate] = std::move(chat);
  return words;
}

void write_chat_template(const std::string& chat, const std::string& directory) {
  if (chat.empty()) return;
  write_file_atomically(concat(directory, "/chat_template.jinja"), chat);
  add_end_of_turn(directory, chat);
}

}  // namespace trireme
