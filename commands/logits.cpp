#include "commands/logits.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands/command_line.h"
#include "commands/connect.h"
#include "commands/model_option.h"
#include "commands/rank_options.h"
#include "engine/io/input_file.h"
#include "engine/io/safetensors.h"
#include "engine/io/strict_json.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/device.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/model/sequence_logits.h"

namespace trireme {
namespace {

struct LogitsArguments {
  std::string model, tokens, output;
  std::string device = "auto";
  std::optional<DType> dtype;
  LayoutOptions layout;
  int ranks = 0;
};

using Sequences = std::vector<std::vector<int32_t>>;

// Reads one sequence per line: [1, 2, 3], or {"ids": [1, 2, 3]} as `trireme tokenize --json` writes
// it.
Sequences read_sequences(const LogitsArguments& args, const ModelConfig& model) {
  require_file_or_pipe(args.tokens);
  std::ifstream in(args.tokens);
  if (!in) fail_input("cannot open ", args.tokens);
  Sequences sequences;
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string what = concat(args.tokens, ", line ", number);
    auto json = parse_strict_json<nlohmann::json>(line, what);
    if (json.is_object() && json.contains("ids")) json = nlohmann::json(json["ids"]);
    if (!json.is_array() || json.empty())
      fail_input(what, ": expected a list of ids, such as [1, 2] or {\"ids\": [1, 2]}");
    std::vector<int32_t>& ids = sequences.emplace_back();
    for (const auto& item : json) {
      const int64_t id = item.is_number_integer() ? item.get<int64_t>() : -1;
      if (id < 0 || id >= model.vocab_size)
        fail_input(what, ": ", item.dump().substr(0, 40), " is not a token id from 0 to ",
                   model.vocab_size - 1);
      ids.push_back(static_cast<int32_t>(id));
    }
    if (std::ssize(ids) > longest_sequence(model))
      fail_input(what, ": ", ids.size(), " tokens, expected at most the model's ",
                 longest_sequence(model), " positions");
  }
  if (sequences.empty()) fail_input(args.tokens, ": has no sequences");
  return sequences;
}

// Opens the output file and writes ids and offsets; the logits are written sequence by sequence.
std::unique_ptr<SafetensorsWriter> open_output(const LogitsArguments& args,
                                               const Sequences& sequences, int64_t vocabulary) {
  std::vector<int32_t> ids, offsets = {0};
  for (const std::vector<int32_t>& s : sequences) {
    ids.insert(ids.end(), s.begin(), s.end());
    offsets.push_back(static_cast<int32_t>(ids.size()));
  }
  const std::vector<SafetensorsSpec> specs = {
      {"input_ids", DType::kI32, {std::ssize(ids)}},
      {"cu_seqlens", DType::kI32, {std::ssize(offsets)}},
      {"logits", DType::kF32, {std::ssize(ids), vocabulary}}};
  auto out = std::make_unique<SafetensorsWriter>(args.output, specs);
  out->write(std::as_bytes(std::span(ids)));
  out->write(std::as_bytes(std::span(offsets)));
  return out;
}

void run_logits(const LogitsArguments& args, const CLI::App& command, const CommandLine& line) {
  before_connecting([&] { ensure_ranks(args.ranks, line.argc, line.argv); });
  const std::unique_ptr<World> world =
      connect_ranks(world_options(CommConfig{}), facts_of_command(command));
  RankDevice device;  // outlives the objects on it
  LoadedModel loaded(args.model, world->world(), args.dtype);
  loaded.allow_non_finite();  // non-finite weights may be what is compared
  const ModelConfig& model = loaded.config();
  Sequences sequences;
  ParallelSizes sizes;
  int64_t longest = 0;
  agreed(world->world(), [&] {
    sequences = read_sequences(args, model);
    for (const auto& s : sequences) longest = std::max(longest, std::ssize(s));
    sizes = resolve_layout(args.layout, model, world->size());
    if (sizes.pp > 1 || sizes.dp > 1 || sizes.cp > 1)
      fail_input(
          "logits supports tensor-parallel ranks only: start as many ranks as --tensor-parallel");
  });
  device = open_rank_device(*world, args.device, loaded.bundle().device_backend);
  const Groups groups(world->world(), sizes, kv_head_copies(model, sizes.tp));
  Ctx ctx(pin_rank(*world, 0), "activations", device.get());
  agreed(world->world(), [&] { loaded.load(ctx, groups.layout, longest); });
  std::unique_ptr<SafetensorsWriter> out;
  agreed(world->world(), [&] {
    if (world->rank() == 0) out = open_output(args, sequences, model.vocab_size);
  });
  for (const std::vector<int32_t>& ids : sequences) {
    const std::vector<float> logits =
        sequence_logits(loaded.model(), loaded.parameters(), ctx, groups, ids);
    agreed(world->world(), [&] {
      if (out != nullptr) out->write(std::as_bytes(std::span(logits)));
    });
  }
  agreed(world->world(), [&] {
    if (out != nullptr) out->commit();
  });
  if (world->rank() == 0)
    std::printf("%s: logits of %zu sequences\n", args.output.c_str(), sequences.size());
}

}  // namespace

CLI::App* add_logits_command(CLI::App& app, const CommandLine& line) {
  auto args = std::make_shared<LogitsArguments>();
  CLI::App* command =
      app.add_subcommand("logits", "Write a model's logits for given token ids, for comparisons");
  add_model_option(*command, args->model);
  command
      ->add_option("--tokens", args->tokens,
                   "File of token id sequences, one per line: [1, 2, 3], or {\"ids\": [...]} as "
                   "printed by `trireme tokenize --json`")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--output", args->output,
                   "Output .safetensors file: input_ids (T), cu_seqlens (N + 1), logits (T, V)")
      ->required()
      ->type_name("FILE");
  add_device_option(*command, args->device);
  add_dtype_option(*command, args->dtype);
  add_layout_options(*command, args->layout, LayoutUse::kModelOnly);
  add_ranks_option(*command, args->ranks);
  command->callback([args, command, line] { run_logits(*args, *command, line); });
  return command;
}

}  // namespace trireme
