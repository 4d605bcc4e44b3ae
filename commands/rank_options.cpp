#include "commands/rank_options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "commands/failure.h"

namespace trireme {

void add_ranks_option(CLI::App& command, int& ranks) {
  add_ranks_option(command, ranks, 4096,
                   "Ranks to start on this machine through mpirun (default: as many as the "
                   "launcher started, or 1)");
}

void add_ranks_option(CLI::App& command, int& ranks, int max_ranks, const std::string& help) {
  command
      .add_option_function<int>(
          "--ranks",
          [&ranks](int given) {
            ranks = given;
            claim_ranks(given);
          },
          help)
      ->type_name("N")
      ->check(CLI::Range(1, max_ranks));
}

void add_adapter_option(CLI::App& command, std::string& adapter) {
  command.add_option("--adapter", adapter, "PEFT adapter: a directory with adapter_config.json")
      ->type_name("DIR");
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "Device: auto (GPUs if every rank sees one), cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
}

void add_dtype_option(CLI::App& command, std::optional<DType>& dtype) {
  static const std::map<std::string, std::optional<DType>> kNames = {
      {"auto", {}},           {"fp32", DType::kF32},    {"float32", DType::kF32},
      {"float", DType::kF32}, {"bf16", DType::kBF16},   {"bfloat16", DType::kBF16},
      {"fp16", DType::kF16},  {"float16", DType::kF16}, {"half", DType::kF16}};
  command
      .add_option_function<std::string>(
          "--dtype", [&dtype](const std::string& name) { dtype = kNames.at(name); },
          "Type of weights and matrix products: fp32, bf16, fp16, or vLLM's names for these: "
          "float32 (float), bfloat16, float16 (half); auto: the checkpoint's type (default)")
      ->type_name("TYPE")
      ->check(CLI::IsMember(&kNames));
}

void add_quantization_option(CLI::App& command, std::optional<BlockFormat>& format) {
  static const std::map<std::string, BlockFormat> kNames = {{"q4_0", BlockFormat::kQ4_0},
                                                            {"q8_0", BlockFormat::kQ8_0}};
  command
      .add_option_function<std::string>(
          "--quantization", [&format](const std::string& name) { format = kNames.at(name); },
          "Quantization of linear weights while loading, in blocks of 32: q8_0 (8 bits) or q4_0 (4 "
          "bits) (default: none)")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"q8_0", "q4_0"}));
}

void add_kv_cache_option(CLI::App& command, std::optional<KvType>& type) {
  static const std::map<std::string, std::optional<KvType>> kNames = {
      {"auto", {}},
      {"float32", KvType{DType::kF32}},
      {"float16", KvType{DType::kF16}},
      {"bfloat16", KvType{DType::kBF16}},
      {"fp8", KvType{DType::kU8, KvCodes::kE4M3}},
      {"fp8_e4m3", KvType{DType::kU8, KvCodes::kE4M3}},
      {"fp8_e5m2", KvType{DType::kU8, KvCodes::kE5M2}},
      {"int8", KvType{DType::kU8, KvCodes::kInt8}}};
  command
      .add_option_function<std::string>(
          "--kv-cache-dtype", [&type](const std::string& name) { type = kNames.at(name); },
          "Type of the KV cache: auto (type of the weights), float32, float16, bfloat16; or, with "
          "8 bits and a scale per row: int8, fp8_e4m3 (fp8), fp8_e5m2. On a GPU only auto and the "
          "8-bit types (default: auto)")
      ->type_name("TYPE")
      ->check(CLI::IsMember(
          {"auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"}));
}

std::string quantization_name(std::optional<BlockFormat> format, DType otherwise) {
  if (!format.has_value()) return std::string(dtype_name(otherwise));
  return *format == BlockFormat::kQ8_0 ? "q8_0" : "q4_0";
}

double quantized_weight_bytes(std::optional<BlockFormat> format, DType otherwise) {
  if (!format.has_value()) return static_cast<double>(dtype_size(otherwise));
  return static_cast<double>(block_file_bytes(*format)) / static_cast<double>(kQuantBlock);
}

namespace {

const CLI::Range kSize(1, 1 << 20);

void add_sequence_options(CLI::App& command, LayoutOptions& layout) {
  ParallelSizes& sizes = layout.sizes;
  command
      .add_option("--context-parallel", sizes.cp,
                  "Context-parallel size: ranks that split every sequence (default: 1)")
      ->check(kSize);
  command.add_flag("--sequence-parallel", sizes.sequence_parallel,
                   "Sequence parallelism: norms and the residual stream split by tokens over the "
                   "tensor-parallel ranks");
  command
      .add_option_function<std::string>(
          "--cp-comm-type",
          [&layout](const std::string& name) {
            layout.cp_comm_type = parse_context_comm_type(name);
          },
          "Communication of context-parallel attention, as parallel.cp_comm_type (default: p2p)")
      ->check(CLI::IsMember(context_comm_types()));
  command
      .add_option_function<std::string>(
          "--cp-balance",
          [&sizes](const std::string& name) { sizes.cp_balance = parse_context_balance(name); },
          "Assignment of sequence chunks to context-parallel ranks, as parallel.cp_balance "
          "(default: zigzag)")
      ->check(CLI::IsMember(context_balances()));
}

}  // namespace

void add_layout_options(CLI::App& command, LayoutOptions& layout, LayoutUse use) {
  ParallelSizes& sizes = layout.sizes;
  command
      .add_option("--tensor-parallel,--tensor-parallel-size,--tensor", sizes.tp,
                  "Tensor-parallel size: ranks that split every matrix (default: 1)")
      ->check(kSize);
  command
      .add_option("--pipeline-parallel,--pipeline-parallel-size,--pipeline", sizes.pp,
                  "Pipeline-parallel size: stages of consecutive layers (default: 1)")
      ->check(kSize);
  const bool all = use == LayoutUse::kAll;
  command
      .add_option("--expert-parallel,--expert-parallel-size", sizes.ep,
                  all ? "Expert-parallel size: ranks that divide the experts (default: 1)"
                      : "Expert-parallel size: tensor-parallel ranks that divide the experts "
                        "(default: 1)")
      ->check(kSize);
  command
      .add_option(
          "--expert-tensor-parallel", sizes.etp,
          all ? "Expert-tensor-parallel size: ranks that split the matrices of each expert "
                "(default: 1)"
              : "Expert-tensor-parallel size: tensor-parallel ranks that split the matrices "
                "of each expert (default: 1)")
      ->check(kSize);
  if (all) add_sequence_options(command, layout);
}

WorldOptions world_options(const CommConfig& config) {
  WorldOptions options;
  options.backend = config.backend;
  options.comm.algorithm = parse_comm_algorithm(config.algorithm);
  options.comm.ranks_per_node = narrow<int>(config.ranks_per_node);
  options.comm.window_bytes = config.bucket_bytes;
  options.comm.timeout_s = config.timeout_s;
  options.announce_loss = announce_loss;
  return options;
}

}  // namespace trireme
