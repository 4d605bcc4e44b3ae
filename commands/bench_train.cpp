// bench train: whole training steps on random tokens.
#include "training/bench_train.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench.h"
#include "engine/core/cpu.h"
#include "engine/observe/progress.h"
#include "engine/ops/gemm.h"
#include "transformer/flops.h"

namespace trireme {
namespace {

struct Arguments {
  std::string model = "gpt2-124m";
  std::string dtype = "float32";
  BenchTrainOptions options;
  bool json = false;
};

// The two models that published comparisons use; any other is given as a config.json.
ModelConfig named_model(const std::string& name) {
  ModelConfig m;
  if (name == "gpt2-124m") {
    m.family = ModelFamily::kGpt2;
    m.vocab_size = 50257;
    m.hidden_size = 768;
    m.intermediate_size = 3072;
    m.num_layers = m.num_heads = m.num_kv_heads = 12;
    m.head_dim = 64;
    m.max_positions = 1024;
    m.tie_word_embeddings = m.attention_bias = m.attention_output_bias = m.mlp_bias = true;
    return m;
  }
  if (name == "llama-15m") {
    m.vocab_size = 32000;
    m.hidden_size = 288;
    m.intermediate_size = 768;
    m.num_layers = m.num_heads = m.num_kv_heads = 6;
    m.head_dim = 48;
    m.max_positions = 1024;
    m.tie_word_embeddings = true;
    return m;
  }
  return load_model_config(name);
}

double peak_of(const BenchTrainReport& r, DType dtype) {
  return dtype == DType::kBF16 ? r.peak.bfloat16_gflops : r.peak.float32_gflops;
}

void print_json(const Arguments& args, const BenchTrainReport& r) {
  nlohmann::ordered_json out = {{"model", args.model},
                                {"parameters", r.parameters},
                                {"batch", args.options.batch},
                                {"sequence_length", args.options.sequence_length},
                                {"dtype", args.dtype},
                                {"threads", r.peak.threads},
                                {"cpu", cpu_model_name()},
                                {"steps", args.options.steps},
                                {"median_ms", r.median_ms},
                                {"least_ms", r.least_ms},
                                {"tokens_per_second", r.tokens_per_second},
                                {"flops_formula", kFlopsFormula},
                                {"gflops", r.gflops},
                                {"gflops_full_attention", r.gflops_full_attention},
                                {"peak_gflops", peak_of(r, args.options.dtype)},
                                {"mfu", r.gflops / peak_of(r, args.options.dtype)},
                                {"planned_bytes", r.bytes},
                                {"resident_bytes", r.resident_bytes},
                                {"allocations_in_steps", r.allocations_in_steps},
                                {"loss", r.loss}};
  for (const auto& [name, share] : r.shares) out["shares"][name] = share;
  std::printf("%s\n", out.dump().c_str());
}

void print_text(const Arguments& args, const BenchTrainReport& r) {
  std::printf("%s, %lld parameters, B %lld, T %lld, %s, %d threads\n%s; %s\n", args.model.c_str(),
              static_cast<long long>(r.parameters), static_cast<long long>(args.options.batch),
              static_cast<long long>(args.options.sequence_length), args.dtype.c_str(),
              r.peak.threads, cpu_model_name().c_str(), gemm_library_version().c_str());
  std::printf("step        %.1f ms median of %lld, %.1f ms least\n", r.median_ms,
              static_cast<long long>(args.options.steps), r.least_ms);
  std::printf("throughput  %.1f tokens/s\n", r.tokens_per_second);
  std::printf("arithmetic  %.1f GFLOP/s by %s = %.1f %% of the measured peak %.1f\n", r.gflops,
              kFlopsFormula, 100 * r.gflops / peak_of(r, args.options.dtype),
              peak_of(r, args.options.dtype));
  std::printf("            %.1f GFLOP/s by 6 N + 12 L C T with all parameters\n",
              r.gflops_full_attention);
  std::printf(
      "memory      %s planned, %s resident, %lld engine allocations during the timed steps\n",
      format_bytes(r.bytes).c_str(), format_bytes(r.resident_bytes).c_str(),
      static_cast<long long>(r.allocations_in_steps));
  std::printf("time       ");
  for (const auto& [name, share] : r.shares) std::printf(" %s %.1f %%", name.c_str(), 100 * share);
  std::printf("\n");
}

void run(Arguments& args) {
  args.options.model = named_model(args.model);
  args.options.dtype = args.dtype == "bfloat16" ? DType::kBF16 : DType::kF32;
  if (args.options.sequence_length > args.options.model.max_positions)
    fail_input("--sequence-length ", args.options.sequence_length, " is above the model's ",
               args.options.model.max_positions, " positions");
  const BenchTrainReport report = bench_train(args.options);
  if (args.json)
    print_json(args, report);
  else
    print_text(args, report);
}

}  // namespace

CLI::App* add_bench_train(CLI::App& parent) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = parent.add_subcommand("train", "Whole training steps on random tokens");
  command->add_option("--model", args->model, "gpt2-124m, llama-15m or the path of a config.json")
      ->capture_default_str();
  command->add_option("--dtype", args->dtype, "float32 or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  BenchTrainOptions& o = args->options;
  command->add_option("--batch", o.batch, "Sequences of a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--sequence-length", o.sequence_length, "Tokens of a sequence")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--steps", o.steps, "Timed steps, after two that are not")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--threads", o.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--json", args->json, "Print one JSON object");
  command->callback([args] { run(*args); });
  return command;
}

}  // namespace trireme
