#include "commands/checkpoint/checkpoint_quantize.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "commands/checkpoint/copy_status.h"
#include "commands/checkpoint/shard_size.h"
#include "commands/model_option.h"
#include "commands/table.h"
#include "engine/observe/log.h"
#include "engine/observe/progress.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/checkpoint/saved_chat_template.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_writer.h"

namespace trireme {
namespace {

struct QuantizeArguments {
  std::string from, to, kind;
  std::string max_shard_size = "5GB";
};

struct CheckpointQuantizeKind {
  std::string gguf;                // tensor type in a GGUF file; "": a HuggingFace directory
  Quantization quantization = {};  // for a directory
};

const std::map<std::string, CheckpointQuantizeKind>& kinds() {
  using Method = Quantization::Method;
  static const std::map<std::string, CheckpointQuantizeKind> table = {
      {"fp8", {"", {.method = Method::kFp8}}},
      {"gptq4", {"", {.method = Method::kGptq, .bits = 4}}},
      {"gptq8", {"", {.method = Method::kGptq, .bits = 8}}},
      {"q8_0", {"Q8_0"}},
      {"q6_k", {"Q6_K"}},
      {"q4_k", {"Q4_K"}},
      {"q4_0", {"Q4_0"}}};
  return table;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g%%", 100 * share);
  return text;
}

void print_report(const QuantizationReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"type", "tensors", "before", "after", "error", "worst", "of"}};
  for (const auto& [kind, k] : report.kinds) {
    const bool rounded = k.error.squared_error > 0;
    rows.push_back({kind, std::to_string(k.tensors), format_bytes(k.before), format_bytes(k.after),
                    rounded ? percent(k.error.relative()) : "-", rounded ? percent(k.worst) : "-",
                    k.worst_tensor});
  }
  print_table(rows);
}

// GGUF type of the tensors that are not quantized: the model's type.
std::string gguf_type_of(DType dtype) {
  if (dtype == DType::kBF16) return "BF16";
  return dtype == DType::kF16 ? "F16" : "F32";
}

void say_kept(int64_t bytes) {
  if (bytes > 0)
    log_warning(format_bytes(bytes), " kept from an interrupted copy; the table covers the rest");
}

QuantizationReport write_gguf_file(const QuantizeArguments& args, const std::string& type,
                                   int64_t& bytes) {
  if (std::filesystem::exists(args.to)) fail_input(args.to, " exists; remove it or give another");
  const std::unique_ptr<ModelSource> source = open_any_model(args.from);
  CopyStatus status("quantize");
  const GgufMetadata words = gguf_tokenizer_with_templates(*source, args.from);
  const GgufWritten written = write_gguf(*source, args.to,
                                         {.type = gguf_type_of(source->dtype()),
                                          .linear = type,
                                          .tokenizer = words,
                                          .progress = status.progress()});
  bytes = written.bytes;
  say_kept(written.kept);
  if (words.empty()) log_warning("wrote no tokenizer: the model has none that GGUF can represent");
  return written.report;
}

QuantizationReport write_directory(const QuantizeArguments& args, const Quantization& quantization,
                                   int64_t& bytes) {
  const int64_t shard = parse_shard_size(args.max_shard_size);
  const std::unique_ptr<ModelSource> source = open_any_model(args.from);
  CopyStatus status("quantize");
  const HfWritten written =
      write_hf_directory(*source, args.to,
                         {.max_shard_bytes = shard,
                          .progress = status.progress(),
                          .quantization = quantization,
                          .before_config = [&](const std::string& directory) {
                            write_chat_templates(recorded_chat_templates(args.from), directory);
                          }});
  bytes = written.bytes;
  say_kept(written.kept_bytes);
  return written.report;
}

void quantize(const QuantizeArguments& args) {
  const CheckpointQuantizeKind& kind = kinds().at(args.kind);
  const bool to_gguf = args.to.ends_with(".gguf");
  if (to_gguf != !kind.gguf.empty())
    fail_input("--quantization ", args.kind, " needs a ",
               to_gguf ? "HuggingFace directory" : "file that ends in .gguf", " as output, got ",
               args.to);
  int64_t bytes = 0;
  const QuantizationReport report = to_gguf ? write_gguf_file(args, kind.gguf, bytes)
                                            : write_directory(args, kind.quantization, bytes);
  print_report(report);
  std::printf("quantized %s -> %s: %s\n", args.from.c_str(), args.to.c_str(),
              format_bytes(bytes).c_str());
}

}  // namespace

void add_checkpoint_quantize_command(CLI::App& checkpoint) {
  const auto args = std::make_shared<QuantizeArguments>();
  CLI::App* command =
      checkpoint.add_subcommand("quantize", "Quantize the weights of a model's linear layers");
  const auto settle = add_model_and_places(
      *command, {{"from", &args->from, kAnyModel},
                 {"target", &args->to, "Output: a directory, or a file whose name ends in .gguf"}});
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds()) names.push_back(name);
  command
      ->add_option("--quantization", args->kind,
                   "Format of the weights. HuggingFace directories: fp8 (E4M3 in blocks of 128 by "
                   "128), gptq4, gptq8 (groups of 128, round to nearest). GGUF files: q8_0, q6_k, "
                   "q4_k, q4_0. Embeddings, head, norms and routers are not quantized")
      ->required()
      ->check(CLI::IsMember(names));
  command
      ->add_option("--max-shard-size", args->max_shard_size,
                   "Maximum size of a weight file, such as 5GB or 512MiB")
      ->capture_default_str()
      ->type_name("SIZE");
  command->callback([args, settle] {
    settle();
    quantize(*args);
  });
}

}  // namespace trireme
