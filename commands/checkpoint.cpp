#include "commands/checkpoint.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/checkpoint_copy.h"
#include "commands/checkpoint_quantize.h"
#include "commands/table.h"
#include "engine/io/safetensors.h"
#include "engine/io/sharded_checkpoint.h"
#include "engine/observe/progress.h"
#include "training/run_directory.h"

namespace trireme {
namespace {

struct CheckpointArguments {
  std::string path;
  bool tensors = false;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "(";
  for (size_t d = 0; d < shape.size(); ++d) out += concat(d == 0 ? "" : ", ", shape[d]);
  return out + ")";
}

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

// Short values of the state on one line each; objects are shown as JSON.
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
  return std::filesystem::is_regular_file(path) && path.ends_with(".safetensors");
}

void inspect(const CheckpointArguments& arguments) {
  if (is_safetensors(arguments.path)) {
    inspect_safetensors(arguments.path);
  } else {
    inspect_checkpoint(CheckpointReader(checkpoint_place(arguments.path)), arguments.tensors);
  }
}

void verify(const CheckpointArguments& arguments) {
  const CheckpointReader reader(checkpoint_place(arguments.path));
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
                     const std::shared_ptr<CheckpointArguments>& arguments,
                     void (*action)(const CheckpointArguments&)) {
  CLI::App* command = parent.add_subcommand(name, description);
  command
      ->add_option("path", arguments->path,
                   "A run, a step directory, or the directory that holds `latest`")
      ->required()
      ->type_name("PATH");
  command->callback([arguments, action] { action(*arguments); });
  return command;
}

}  // namespace

CLI::App* add_checkpoint_command(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("checkpoint", "Look into checkpoints, check, convert and compare them");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<CheckpointArguments>();
  CLI::App* list =
      add_action(*command, "inspect",
                 "Print what a checkpoint (or a .safetensors file) holds: tensors, sizes, "
                 "training state",
                 arguments, inspect);
  list->add_flag("-t,--tensors", arguments->tensors, "List every tensor");
  add_action(*command, "verify",
             "Read every byte and compare checksums; exit code 2 names the damaged shard",
             arguments, verify);
  add_checkpoint_copy_commands(*command);
  add_checkpoint_quantize_command(*command);
  return command;
}

}  // namespace trireme
