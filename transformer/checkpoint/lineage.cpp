#include "transformer/checkpoint/lineage.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/checksum.h"
#include "engine/io/file_identity.h"
#include "engine/io/sharded_checkpoint.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/formats/model_source.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

fs::path from_root(const std::string& path) { return fs::absolute(path).lexically_normal(); }

// Checkpoints at a path, newest first.
std::vector<std::string> checkpoints_at(const std::string& path) {
  const fs::path place = checkpoints_directory(path);
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

// find_model(path), restricted to this identity unless it is empty. Empty: no such model.
std::string find_identified(const std::string& path, const std::string& identity) {
  if (identity.empty()) return find_model(path);
  const bool of_others = is_model_source(path);
  for (const std::string& place : of_others ? std::vector{path} : checkpoints_at(path))
    if (model_identity(place) == identity) return find_model(place);
  return "";
}

// "CHECKPOINT was trained with base model BASE (0123456789abcdef)"
std::string tie(const std::string& checkpoint, const CheckpointLineage& lineage) {
  return concat(checkpoint, " was trained with base model ", lineage.base, " (",
                lineage.base_identity, ")");
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

Json lineage_to_json(const CheckpointLineage& lineage) {
  return {{"special_tokens", lineage.special_tokens},
          {"chat_template", chat_templates_to_json(lineage.chat_templates)},
          {"examples", lineage.examples},
          {"data", lineage.data},
          {"base", lineage.base},
          {"base_beside", lineage.base_relative},
          {"base_identity", lineage.base_identity}};
}

CheckpointLineage lineage_from_json(const Json& state) {
  CheckpointLineage lineage;
  if (!state.is_object()) return lineage;
  const bool earlier = !state.contains("origin");  // with identities in another format
  const Json json = state.value(earlier ? "finetune" : "origin", Json::object());
  if (!json.is_object()) return lineage;
  const auto read = [&](const char* name, std::string& value) {
    if (json.contains(name) && json[name].is_string()) value = json[name].get<std::string>();
  };
  if (json.contains("special_tokens")) lineage.special_tokens = json["special_tokens"] == true;
  if (json.contains("chat_template"))
    lineage.chat_templates = chat_templates_from_json(json["chat_template"]);
  read("examples", lineage.examples);
  read("data", lineage.data);
  read("base", lineage.base);
  read("base_beside", lineage.base_relative);
  if (!earlier) read("base_identity", lineage.base_identity);
  return lineage;
}

CheckpointLineage read_lineage(const CheckpointReader& reader) {
  return lineage_from_json(reader.state());
}

std::string find_base(const std::string& checkpoint, const std::string& load) {
  const CheckpointLineage lineage = read_lineage(CheckpointReader(checkpoint));
  const fs::path saved = from_root(checkpoint).parent_path();
  std::vector<std::string> places{load, lineage.base};
  if (!lineage.base_relative.empty())
    places.push_back((saved / lineage.base_relative).lexically_normal().string());
  // Earlier versions: `load` is relative to the parent of the run's folder.
  if (!load.empty()) places.push_back((saved.parent_path().parent_path() / load).string());
  std::set<std::string> seen{""};
  std::string others;
  std::error_code ignored;
  for (const std::string& place : places) {
    if (!seen.insert(place).second || !fs::exists(place, ignored)) continue;
    if (std::string found = find_identified(place, lineage.base_identity); !found.empty())
      return found;
    others += concat(place, " is another model, ");
  }
  if (lineage.base_identity.empty() && !load.empty()) return find_model(load);
  fail_input(tie(checkpoint, lineage), ", which is not found: ", others,
             "nothing else is at its old paths; put it back, or name its path: checkpoint.load in "
             "training, trireme checkpoint merge-lora MODEL ",
             checkpoint, " OUT, trireme generate MODEL --adapter ",
             (saved.parent_path() / "adapter").string());
}

std::string find_base_at(const std::string& path, const std::string& checkpoint) {
  const CheckpointLineage lineage = read_lineage(CheckpointReader(checkpoint));
  if (!fs::exists(path)) return find_model(path);  // throws the error
  std::string found = find_identified(path, lineage.base_identity);
  if (found.empty())
    fail_input(tie(checkpoint, lineage), ", and ", path,
               " is another model; give that one, or train adapters for this one");
  return found;
}

}  // namespace trireme
