#include "commands/checkpoint/checkpoint_copy.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "commands/checkpoint/copy_status.h"
#include "commands/checkpoint/shard_size.h"
#include "commands/model_option.h"
#include "engine/io/hub_cache.h"
#include "engine/observe/console.h"
#include "engine/observe/log.h"
#include "engine/observe/progress.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/checkpoint/model_diff.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/checkpoint/saved_chat_template.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/load_config.h"

namespace trireme {
namespace {

struct CopyArguments {
  std::string adapters;  // merge-lora
  std::string from, to;
  std::string kind;   // of the output; empty: derived from its name
  std::string dtype;  // empty: unchanged
  std::string max_shard_size = "5GB";
  double tolerance = 0;
};

// Value of --dtype. Absent: each tensor keeps its type.
std::optional<DType> dtype_of(const CopyArguments& args) {
  static const std::map<std::string, DType> kNames = {
      {"fp32", DType::kF32}, {"bf16", DType::kBF16}, {"fp16", DType::kF16}};
  const auto found = kNames.find(args.dtype);
  if (found != kNames.end()) return found->second;
  if (args.dtype.empty()) return {};
  fail_input("--dtype ", args.dtype,
             " is not supported for this output format; supported: fp32, bf16, fp16");
}

// kept: bytes of `bytes` that an interrupted copy had written already.
void report(const char* what, const CopyArguments& args, int64_t bytes, int64_t kept,
            double seconds, const std::string& rest = "") {
  std::string line = concat(what, " ", args.from, " -> ", args.to, ": ", format_bytes(bytes),
                            " in ", format_duration(seconds), " (",
                            speed_text(static_cast<double>(bytes - kept) / seconds), ")", rest);
  if (kept > 0) line += concat(", ", format_bytes(kept), " kept from an interrupted copy");
  console_print(Stream::kOut, line);
}

void export_to(const CopyArguments& args) {
  const int64_t shard = parse_shard_size(args.max_shard_size);
  const std::unique_ptr<ModelSource> source = open_any_model(args.from);
  CopyStatus status("export");
  const HfWritten written =
      write_hf_directory(*source, args.to,
                         {.dtype = dtype_of(args),
                          .max_shard_bytes = shard,
                          .progress = status.progress(),
                          .before_config = [&](const std::string& directory) {
                            write_chat_templates(recorded_chat_templates(args.from), directory);
                          }});
  report("exported", args, written.bytes, written.kept_bytes, status.seconds(),
         concat(", ", written.files, written.files == 1 ? " file" : " files"));
  if (written.tokenizer_files.empty())
    log_warning("wrote no tokenizer files: the model has no tokenizer that HuggingFace can read (",
                source->tokenizer().empty() ? "none" : source->tokenizer(), ")");
}

void merge_lora(const CopyArguments& args) {
  const int64_t shard = parse_shard_size(args.max_shard_size);
  const std::unique_ptr<ModelSource> source = open_merged_model(args.from, args.adapters);
  const ChatTemplateSources chat = recorded_chat_templates(args.adapters);
  CopyStatus status("merge");
  const HfWritten written = write_hf_directory(
      *source, args.to,
      {.dtype = dtype_of(args),
       .max_shard_bytes = shard,
       .progress = status.progress(),
       .before_config = [&](const std::string& directory) {
         write_chat_templates(chat.empty() ? recorded_chat_templates(args.from) : chat, directory);
       }});
  report("merged", args, written.bytes, written.kept_bytes, status.seconds(),
         concat(" with ", args.adapters));
}

void import_from(const CopyArguments& args) {
  if (!is_model_source(args.from))
    fail_input(args.from,
               " is not a third-party model: expected a HuggingFace directory or a .gguf file",
               model_advice(args.from));
  const std::unique_ptr<ModelSource> source = open_model_source(args.from);
  CopyStatus status("import");
  const SavedCheckpoint saved =
      import_model(*source, args.to, {.dtype = dtype_of(args), .progress = status.progress()});
  report("imported", args, saved.bytes, saved.kept, status.seconds());
}

// Tensor type in GGUF; F16 is read by all programs.
std::string gguf_type_of(const CopyArguments& args, const ModelSource& source) {
  if (args.dtype == "q8_0") return "Q8_0";
  switch (dtype_of(args).value_or(source.dtype())) {
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    default: return "F32";
  }
}

void to_gguf(const CopyArguments& args) {
  if (std::filesystem::exists(args.to)) fail_input(args.to, " exists; remove it or give another");
  const std::unique_ptr<ModelSource> source = open_any_model(args.from);
  CopyStatus status("convert");
  const std::string tokenizer = source->tokenizer();
  const GgufMetadata words = gguf_tokenizer_with_templates(*source, args.from);
  const GgufWritten written = write_gguf(
      *source, args.to,
      {.type = gguf_type_of(args, *source), .tokenizer = words, .progress = status.progress()});
  report("converted", args, written.bytes, written.kept, status.seconds());
  if (words.empty())
    log_warning("wrote no tokenizer: the model has none that GGUF can represent (",
                tokenizer.empty() ? "none" : tokenizer, ")");
}

void convert(const CopyArguments& args) {
  const std::string by_name = args.to.ends_with(".gguf") ? "gguf" : "hf";
  const std::string kind = args.kind.empty() ? by_name : args.kind;
  if (kind == "gguf") return to_gguf(args);
  return kind == "trireme" ? import_from(args) : export_to(args);
}

void print_difference(const TensorDifference& d) {
  std::string line = d.name + "  " + d.what;
  if (d.differing > 0)
    line += concat(d.what.empty() ? "" : "  ", d.differing, " of ", d.elements,
                   " values differ, by at most ", d.largest_absolute, " (relative ",
                   d.largest_relative, ")");
  std::printf("%s\n", line.c_str());
}

void diff(const CopyArguments& args) {
  ModelDiff result;
  {
    CopyStatus status("diff");
    result = diff_models(args.from, local_model(args.to),
                         {.tolerance = args.tolerance, .progress = status.progress()});
  }
  for (const TensorDifference& d : result.differences) print_difference(d);
  std::printf("%lld tensors in both, %zu differences\n", static_cast<long long>(result.tensors),
              result.differences.size());
  if (!result.differences.empty()) throw CLI::RuntimeError(1);
}

using Shared = std::shared_ptr<CopyArguments>;

CLI::App* add_action(CLI::App& parent, const char* name, const char* description,
                     void (*action)(const CopyArguments&), const Shared& args, const char* from,
                     const char* to) {
  CLI::App* command = parent.add_subcommand(name, description);
  // Not "to": CLI11 2.4 takes that for the option of `convert`.
  const auto settle =
      add_model_and_places(*command, {{"from", &args->from, from}, {"target", &args->to, to}});
  command->callback([args, action, settle] {
    settle();
    action(*args);
  });
  return command;
}

void add_dtype(CLI::App& command, CopyArguments& args) {
  command.add_option("--dtype", args.dtype, "Type of the weights (default: unchanged)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
}

void add_shard_size(CLI::App& command, CopyArguments& args) {
  command
      .add_option("--max-shard-size", args.max_shard_size,
                  "Maximum size of a weight file, such as 5GB or 512MiB")
      ->capture_default_str()
      ->type_name("SIZE");
}

}  // namespace

void add_checkpoint_copy_commands(CLI::App& checkpoint) {
  const auto args = std::make_shared<CopyArguments>();
  CLI::App* exported =
      add_action(checkpoint, "export", "Write a model as a HuggingFace directory", export_to, args,
                 kAnyModel, "Output directory; an interrupted export in it is resumed");
  add_dtype(*exported, *args);
  add_shard_size(*exported, *args);
  CLI::App* merged = checkpoint.add_subcommand(
      "merge-lora", "Merge adapters into a model's weights and write a HuggingFace directory");
  const auto settle = add_model_and_places(
      *merged,
      {{"base", &args->from, kAnyModel},
       {"adapters", &args->adapters, "PEFT adapter directory, or a run that trained adapters"},
       {"target", &args->to, "Output directory"}});
  merged->callback([args, settle] {
    settle();
    args->adapters = local_model(args->adapters);
    merge_lora(*args);
  });
  add_dtype(*merged, *args);
  add_shard_size(*merged, *args);
  CLI::App* imported = add_action(
      checkpoint, "import", "Convert a third-party model to a Trireme checkpoint", import_from,
      args, "HuggingFace directory or .gguf", "Output directory of checkpoints");
  add_dtype(*imported, *args);
  CLI::App* converted = add_action(checkpoint, "convert", "Write a model in another format or type",
                                   convert, args, kAnyModel, "Output file or directory");
  converted
      ->add_option(
          "--to", args->kind,
          "Output format: hf, trireme or gguf (default: gguf if the name ends in .gguf, else hf)")
      ->check(CLI::IsMember({"hf", "trireme", "gguf"}));
  converted
      ->add_option("--dtype", args->dtype,
                   "Type of the weights, q8_0 in a GGUF file only (default: unchanged)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "q8_0"}));
  add_shard_size(*converted, *args);
  CLI::App* compared = add_action(
      checkpoint, "diff",
      "Compare two models tensor by tensor; exit code 0: no difference, 1: differences, 2: error",
      diff, args, "Any model, or a .safetensors file", "Model to compare with");
  compared
      ->add_option("--tolerance", args->tolerance,
                   "Accepted difference, as a fraction of the larger value; if above 0, dtypes may "
                   "differ too")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
}

}  // namespace trireme
