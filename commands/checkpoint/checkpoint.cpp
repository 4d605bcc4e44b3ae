#include "commands/checkpoint/checkpoint.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/checkpoint/checkpoint_copy.h"
#include "commands/checkpoint/checkpoint_quantize.h"
#include "commands/checkpoint/model_description.h"
#include "commands/model_option.h"
#include "commands/table.h"
#include "commands/whole_number.h"
#include "engine/io/gguf.h"
#include "engine/io/input_file.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_directory.h"
#include "engine/io/sharded_checkpoint.h"
#include "engine/observe/progress.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/model_bundle.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme {
namespace {

struct CheckpointArguments {
  std::string path;
  bool tensors = false;
  bool json = false;
  int64_t max_model_len = 0;  // 0: the longest sequence of the model
  bool describes() const { return json || max_model_len > 0; }
};

void print_kinds(const CheckpointManifest& manifest) {
  struct Total {
    int64_t tensors = 0, elements = 0, bytes = 0;
    DType dtype = DType::kF32;
  };
  std::map<std::string, Total> kinds;
  for (const CheckpointTensor& tensor : manifest.tensors) {
    Total& total = kinds[tensor.kind];
    ++total.tensors;
    total.elements += tensor.numel();
    total.bytes += tensor.numel() * dtype_size(tensor.dtype);
    total.dtype = tensor.dtype;
  }
  std::vector<std::vector<std::string>> rows = {{"kind", "tensors", "elements", "bytes", "dtype"}};
  for (const auto& [kind, total] : kinds) {
    rows.push_back({kind, std::to_string(total.tensors), std::to_string(total.elements),
                    format_bytes(total.bytes), text(total.dtype)});
  }
  print_table(rows);
}

// Prints each value of the state on one line, shortened; objects as JSON.
void print_state(const nlohmann::ordered_json& state) {
  for (const auto& [key, value] : state.items()) {
    const std::string shown = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const bool is_long = shown.size() > 100;
    std::printf("  %s: %s%s\n", key.c_str(), shown.substr(0, 100).c_str(), is_long ? " ..." : "");
  }
}

void inspect_checkpoint(const CheckpointReader& reader, bool tensors) {
  const CheckpointManifest& manifest = reader.manifest();
  int64_t bytes = 0;
  for (const CheckpointShard& shard : manifest.shards) bytes += shard.bytes;
  std::printf("%s: step %lld, %zu tensors in %zu shards, %s, written by version %s\n\n",
              reader.directory().c_str(), static_cast<long long>(reader.step()),
              manifest.tensors.size(), manifest.shards.size(), format_bytes(bytes).c_str(),
              manifest.engine_version.c_str());
  print_kinds(manifest);
  std::printf("\nstate\n");
  print_state(reader.state());
  if (!tensors) {
    std::printf("\n--tensors lists every tensor\n");
    return;
  }
  std::printf("\n");
  std::vector<std::vector<std::string>> rows = {{"kind", "dtype", "slices", "shape", "name"}};
  for (const CheckpointTensor& tensor : manifest.tensors) {
    rows.push_back({tensor.kind, text(tensor.dtype), std::to_string(tensor.slices.size()),
                    shape_text(tensor.shape), tensor.name});
  }
  print_table(rows);
}

void inspect_safetensors(const std::string& path) {
  const SafetensorsReader reader(path);
  std::printf("%s: %zu tensors\n", path.c_str(), reader.entries().size());
  for (const auto& [key, value] : reader.metadata()) {
    std::printf("  %s: %s\n", key.c_str(), value.c_str());
  }
  std::vector<std::vector<std::string>> rows = {{"dtype", "bytes", "shape", "name"}};
  for (const SafetensorsEntry& entry : reader.entries()) {
    rows.push_back(
        {entry.dtype_name, format_bytes(entry.bytes()), shape_text(entry.shape), entry.name});
  }
  print_table(rows);
}

bool is_safetensors(const std::string& path) {
  return path.ends_with(".safetensors") && !std::filesystem::is_directory(path) &&
         is_input_file(path);
}

std::unique_ptr<TensorSource> open_tensors(const std::string& path) {
  if (is_gguf(path)) return std::make_unique<GgufFile>(path);
  return std::make_unique<SafetensorsDirectory>(path);
}

// Third-party model: its configuration where that can be read, and the remarks about it.
struct OpenedModel {
  std::string line;  // what was opened, or why nothing was
  std::optional<ThirdPartyConfig> description;
  std::string refused;  // problems of its config.json
};

OpenedModel open_model(const std::string& path) {
  OpenedModel out;
  try {
    if (is_hf_model(path)) out.description = read_third_party_config(path);
  } catch (const InputError& e) {
    out.line = "not opened as a model: its config.json is refused";
    out.refused = e.what();
    return out;
  }
  try {
    const std::unique_ptr<ModelSource> model = open_model_source(path);
    if (!out.description.has_value()) out.description = ThirdPartyConfig{.file = path};
    out.description->config = model->config();
    out.line = concat("model_type ", family_of(model->config().family).model_type, ", ",
                      parameter_count(model->config()), " parameters");
  } catch (const InputError& e) {
    out.line = concat("not opened as a model: ", e.what());
  }
  return out;
}

// head: lines above the tables.
void print_model(const ThirdPartyConfig& model, const CheckpointArguments& arguments,
                 const std::string& head = "") {
  const Json description = model_description(model, arguments.max_model_len);
  if (arguments.json) {
    std::printf("%s\n", description.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    return;
  }
  std::printf("%s\n", head.c_str());
  print_description(description);
}

// Lists tensors as they are named and stored in the files, even if the model does not use them.
void print_tensors(const TensorSource& source, const CheckpointArguments& arguments,
                   const std::string& line) {
  std::map<std::string, std::array<int64_t, 3>> kinds;
  for (const SourceTensor& t : source.tensors()) {
    std::array<int64_t, 3>& total = kinds[t.dtype_name];
    ++total[0];
    total[1] += t.numel();
    total[2] += t.bytes;
  }
  std::printf("%s: %zu tensors in %zu files\n%s\n\n", arguments.path.c_str(),
              source.tensors().size(), source.files().size(), line.c_str());
  std::vector<std::vector<std::string>> rows = {{"dtype", "tensors", "elements", "bytes"}};
  for (const auto& [dtype, total] : kinds)
    rows.push_back(
        {dtype, std::to_string(total[0]), std::to_string(total[1]), format_bytes(total[2])});
  print_table(rows);
  std::printf("\n");
  if (!arguments.tensors) {
    std::printf("--tensors lists every tensor\n");
    return;
  }
  rows = {{"dtype", "bytes", "shape", "name"}};
  for (const SourceTensor& t : source.tensors())
    rows.push_back({t.dtype_name, format_bytes(t.bytes), shape_text(t.shape), t.name});
  print_table(rows);
}

// Files with weights; a model of theirs is described too.
void inspect_model(const CheckpointArguments& arguments) {
  const std::unique_ptr<TensorSource> source = open_tensors(arguments.path);
  const OpenedModel model = open_model(arguments.path);
  if (!arguments.json) print_tensors(*source, arguments, model.line);
  if (!model.refused.empty()) throw InputError(model.refused);
  if (model.description.has_value()) {
    print_model(*model.description, arguments);
  } else if (arguments.describes()) {
    fail_input(arguments.path, ": ", model.line);
  }
}

// A config.json without weights.
void inspect_config(const CheckpointArguments& arguments) {
  const ThirdPartyConfig model = read_third_party_config(arguments.path);
  const Family& family = family_of(model.config.family);
  print_model(model, arguments,
              concat(model.file, ": model_type ", family.model_type, ", ", family.title,
                     "\nno safetensors: all of this follows from config.json\n"));
}

void inspect_own(const CheckpointArguments& arguments) {
  const std::string place = checkpoints_directory(arguments.path);
  const auto holds = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::path(place) / name, ignored);
  };
  if (std::filesystem::is_directory(place) && !holds(kManifestName) && !holds("latest"))
    fail_input(arguments.path, ": holds neither a checkpoint (", kManifestName,
               ", latest) nor a model (config.json, safetensors)", model_advice(arguments.path));
  const CheckpointReader reader(place);
  if (!arguments.json) inspect_checkpoint(reader, arguments.tensors);
  if (!arguments.describes()) return;
  print_model({.file = reader.directory(), .config = read_model_bundle(reader).model}, arguments);
}

bool is_config_file(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".json") && !std::filesystem::is_directory(path, ignored);
}

void inspect(const CheckpointArguments& arguments) {
  const std::string& path = arguments.path;
  if (is_safetensors(path)) {
    if (arguments.describes())
      fail_input(path,
                 ": a .safetensors file has no model configuration, which --json and "
                 "--max-model-len need");
    inspect_safetensors(path);
  } else if (is_config_file(path) || (is_hf_model(path) && !holds_safetensors(path))) {
    inspect_config(arguments);
  } else if (is_model_source(path) || holds_safetensors(path)) {
    inspect_model(arguments);
  } else {
    inspect_own(arguments);
  }
}

void verify(const CheckpointArguments& arguments) {
  const CheckpointReader reader(checkpoints_directory(arguments.path));
  const std::vector<std::string> problems = reader.verify();
  if (!problems.empty()) {
    std::string all;
    for (const std::string& problem : problems) all += (all.empty() ? "" : "; ") + problem;
    fail_input(all);
  }
  int64_t bytes = 0;
  for (const CheckpointShard& shard : reader.manifest().shards) bytes += shard.bytes;
  std::printf("%s: whole (step %lld, %zu shards, %s read and compared)\n",
              reader.directory().c_str(), static_cast<long long>(reader.step()),
              reader.manifest().shards.size(), format_bytes(bytes).c_str());
}

CLI::App* add_action(CLI::App& parent, const char* name, const char* description,
                     const char* model_help, const std::shared_ptr<CheckpointArguments>& arguments,
                     void (*action)(const CheckpointArguments&)) {
  CLI::App* command = parent.add_subcommand(name, description);
  add_model_option(*command, arguments->path, model_help);
  command->callback([arguments, action] { action(*arguments); });
  return command;
}

}  // namespace

CLI::App* add_checkpoint_command(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("checkpoint", "Inspect, verify, convert and compare checkpoints");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<CheckpointArguments>();
  CLI::App* list = add_action(
      *command, "inspect",
      "Print tensors, sizes and training state of a checkpoint, third-party model or .safetensors "
      "file; and features, parameters and memory of a model, for which a config.json is enough",
      "Run, step directory, directory with `latest`, HuggingFace directory, config.json, .gguf or "
      ".safetensors file",
      arguments, inspect);
  list->add_flag("-t,--tensors", arguments->tensors, "List every tensor");
  list->add_flag("--json", arguments->json,
                 "Print features, parameters and memory of the model as one JSON object");
  list->add_option("--max-model-len", arguments->max_model_len,
                   "Sequence length of the printed KV cache size, in tokens (default: the model's "
                   "maximum length)")
      ->check(whole_number(1));
  add_action(
      *command, "verify",
      "Verify the checksum of every shard; exit code 2 and the names of damaged shards on failure",
      "Run, step directory, or directory with `latest`", arguments, verify);
  add_checkpoint_copy_commands(*command);
  add_checkpoint_quantize_command(*command);
  return command;
}

}  // namespace trireme
