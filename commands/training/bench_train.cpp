// Benchmark of training steps (`bench train`) on random tokens.
#include "training/run/bench_train.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/rank_options.h"
#include "commands/whole_number.h"
#include "engine/core/cpu.h"
#include "engine/observe/progress.h"
#include "engine/ops/gemm/gemm.h"
#include "parallel/comm/world.h"
#include "transformer/model/flops.h"

namespace trireme {
namespace {

struct BenchTrainArguments {
  std::string model = "gpt2-124m";
  std::string dtype = "float32", state_dtype = "float32";
  std::string recompute = "none";
  std::string fp8 = "none";
  std::string device = "auto";
  bool not_deterministic = false;
  BenchTrainOptions options;
  bool json = false;
};

double peak_of(const BenchTrainReport& r, DType dtype) {
  return dtype == DType::kBF16 ? r.peak.bfloat16_gflops : r.peak.float32_gflops;
}

void add_device_numbers(nlohmann::ordered_json& out, const BenchTrainReport& r,
                        const cuda::Context& gpu) {
  const DevicePeak& peak = r.device_peak;
  const double tflops = r.gflops * 1e-3;
  out["device"] = gpu.info.name;
  out["gemm_ceiling_tflops"] = peak.gemm_tflops;
  out["copy_ceiling_gbytes"] = peak.copy_gbytes;
  if (peak.nominal_tflops > 0) {
    out["nominal_tflops"] = peak.nominal_tflops;
    out["mfu"] = tflops / peak.nominal_tflops;
  }
  out["share_of_gemm_ceiling"] = tflops / peak.gemm_tflops;
  out["device_bytes"] = r.device_bytes;
  out["launches_per_micro_batch"] = r.launches;
  add_kernel_choices(out, gpu);
  for (const cuda::LaunchTime& time : r.launch_times)
    out["launch_times"].push_back(
        {{"name", time.name}, {"calls", time.calls}, {"us", time.seconds * 1e6}});
}

nlohmann::ordered_json to_json(const BenchTrainArguments& args, const BenchTrainReport& r,
                               const cuda::Context* gpu) {
  nlohmann::ordered_json out = {{"model", args.model},
                                {"parameters", r.parameters},
                                {"batch", args.options.batch},
                                {"sequence_length", args.options.sequence_length},
                                {"dtype", args.dtype},
                                {"state_dtype", args.state_dtype},
                                {"recompute", args.recompute},
                                {"fp8", args.fp8},
                                {"deterministic", r.deterministic},
                                {"threads", r.peak.threads},
                                {"cpu", cpu_model_name()},
                                {"steps", args.options.steps}};
  if (gpu != nullptr) {
    out["mean_ms"] = r.mean_ms;
  } else {
    out["median_ms"] = r.median_ms;
    out["least_ms"] = r.least_ms;
  }
  if (args.options.micro_batches > 1) {
    out["micro_batches"] = args.options.micro_batches;
    out["micro_ms"] = r.micro_ms;
    out["update_ms"] = r.update_ms;
    out["step_tokens"] = r.step_micro_batches * args.options.batch * args.options.sequence_length;
    out["step_ms"] = r.step_ms;
  }
  if (r.whole_step_ms > 0) out["whole_step_ms"] = r.whole_step_ms;
  out["tokens_per_second"] = r.tokens_per_second;
  out["flops_formula"] = kFlopsFormula;
  out["gflops"] = r.gflops;
  out["gflops_full_attention"] = r.gflops_full_attention;
  if (gpu != nullptr) {
    add_device_numbers(out, r, *gpu);
  } else {
    out["peak_gflops"] = peak_of(r, args.options.dtype);
    out["mfu"] = r.gflops / peak_of(r, args.options.dtype);
  }
  out["planned_bytes"] = r.bytes;
  out["resident_bytes"] = r.resident_bytes;
  out["allocations_in_steps"] = r.allocations_in_steps;
  out["loss"] = r.loss;
  for (const auto& [name, share] : r.shares) out["shares"][name] = share;
  return out;
}

void print_rates(const BenchTrainArguments& args, const BenchTrainReport& r,
                 const cuda::Context* gpu) {
  if (gpu != nullptr) {
    const double tflops = r.gflops * 1e-3;
    std::printf("arithmetic  %.1f TFLOP/s by %s = %.1f %% of the measured GEMM peak %.1f", tflops,
                kFlopsFormula, 100 * tflops / r.device_peak.gemm_tflops, r.device_peak.gemm_tflops);
    if (r.device_peak.nominal_tflops > 0)
      std::printf(", %.1f %% of the nominal %.0f", 100 * tflops / r.device_peak.nominal_tflops,
                  r.device_peak.nominal_tflops);
    std::printf("\nmemory      %s planned, %s of the device in use\n",
                format_bytes(r.bytes).c_str(), format_bytes(r.device_bytes).c_str());
    std::printf("launches    %lld per micro-batch; %s\n", static_cast<long long>(r.launches),
                r.deterministic ? "deterministic" : "not deterministic");
    return;
  }
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

void print_text(const BenchTrainArguments& args, const BenchTrainReport& r,
                const cuda::Context* gpu) {
  const std::string place = gpu != nullptr ? gpu->info.name
                                           : concat(cpu_model_name(), ", ", r.peak.threads,
                                                    " threads; ", gemm_library_version());
  std::printf("%s, %lld parameters, B %lld, T %lld, %s\n%s\n", args.model.c_str(),
              static_cast<long long>(r.parameters), static_cast<long long>(args.options.batch),
              static_cast<long long>(args.options.sequence_length),
              args.fp8 == "none" ? args.dtype.c_str()
                                 : concat(args.dtype, ", products in fp8 ", args.fp8).c_str(),
              place.c_str());
  const auto steps = static_cast<long long>(args.options.steps);
  if (gpu != nullptr)
    std::printf("step        mean %.1f ms of %lld steps\n", r.mean_ms, steps);
  else
    std::printf("step        median %.1f ms of %lld steps, minimum %.1f ms\n", r.median_ms, steps,
                r.least_ms);
  if (args.options.micro_batches > 1)
    std::printf(
        "            micro-batch %.2f ms, update %.2f ms: %.1f ms with %lld micro-batches\n",
        r.micro_ms, r.update_ms, r.step_ms, static_cast<long long>(r.step_micro_batches));
  if (r.whole_step_ms > 0)
    std::printf("            measured whole step %.1f ms\n", r.whole_step_ms);
  std::printf("throughput  %.1f tokens/s\n", r.tokens_per_second);
  print_rates(args, r, gpu);
}

void run(BenchTrainArguments& args) {
  BenchTrainOptions& o = args.options;
  o.model = bench_model(args.model);
  o.dtype = args.dtype == "bfloat16" ? DType::kBF16 : DType::kF32;
  o.state_dtype = args.state_dtype == "bfloat16" ? DType::kBF16 : DType::kF32;
  o.recompute = args.recompute == "full"        ? Recompute::kFull
                : args.recompute == "selective" ? Recompute::kSelective
                                                : Recompute::kNone;
  o.deterministic = !args.not_deterministic;
  if (o.autotune && o.deterministic)
    fail_input(
        "--autotune is not deterministic, since the fastest algorithm may differ between runs; "
        "give --not-deterministic too");
  o.float8.enabled = args.fp8 != "none";
  o.float8.recipe = args.fp8 == "tensorwise"  ? Float8Recipe::kTensorwise
                    : args.fp8 == "blockwise" ? Float8Recipe::kBlockwise
                                              : Float8Recipe::kDelayed;
  if (o.sequence_length > longest_sequence(o.model))
    fail_input("--sequence-length ", o.sequence_length, " is above the model's ",
               longest_sequence(o.model), " positions");
  const std::unique_ptr<cuda::Context> gpu = open_bench_device(args.device);
  WorldOptions single;
  single.backend = "single";
  const std::unique_ptr<World> world = make_world(single);
  if (o.launch_times && gpu == nullptr) fail_input("--launch-times needs a GPU");
  const BenchTrainReport report = bench_train(o, *world, gpu.get());
  if (args.json)
    std::printf("%s\n", to_json(args, report, gpu.get()).dump().c_str());
  else
    print_text(args, report, gpu.get());
}

void add_step_options(CLI::App& command, BenchTrainOptions& o) {
  command.add_option("--batch", o.batch, "Sequences of a micro-batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--sequence-length", o.sequence_length, "Tokens of a sequence")
      ->capture_default_str()
      ->check(whole_number(1));
  command.add_option("--steps", o.steps, "Timed steps, after two untimed ones")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--micro-batches", o.micro_batches,
                  "Micro-batches per step; above 1: steps of 1 and of this many micro-batches are "
                  "timed, to derive the times of one micro-batch and of the optimizer update")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command
      .add_option(
          "--step-tokens", o.step_tokens,
          "Tokens per step, for which the step time is derived from the measured micro-batch "
          "and optimizer update")
      ->capture_default_str()
      ->check(whole_number(1));
  command.add_flag("--whole-step", o.whole_step, "Also time one step of --step-tokens");
}

}  // namespace

CLI::App* add_bench_train(CLI::App& parent) {
  auto args = std::make_shared<BenchTrainArguments>();
  CLI::App* command = parent.add_subcommand("train", "Time whole training steps on random tokens");
  command
      ->add_option("--model", args->model,
                   "Model: " + bench_model_names() +
                       ", a model directory or .gguf, a Hub name, or the path of a config.json")
      ->capture_default_str();
  command
      ->add_option("--dtype", args->dtype, "Type of weights and activations: float32 or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--state-dtype", args->state_dtype, "Type of the optimizer's moments")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command
      ->add_option("--recompute", args->recompute, "Activations to recompute in the backward pass")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "selective", "full"}));
  command
      ->add_option("--fp8", args->fp8, "FP8 scaling recipe of the matrix products in linear layers")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "delayed", "tensorwise", "blockwise"}));
  add_device_option(*command, args->device);
  command->add_flag("--not-deterministic", args->not_deterministic,
                    "On a GPU: allow nondeterministic summation order where that is faster");
  command->add_flag("--autotune", args->options.autotune,
                    "On a GPU: choose the fastest library algorithm for each product by timing");
  command->add_flag(
      "--launch-times", args->options.launch_times,
      "On a GPU: also time each kernel of one step, which then runs without CUDA graphs");
  add_step_options(*command, args->options);
  command->add_option("--threads", args->options.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  add_peak_option(*command, args->options.peak_side);
  command->add_flag("--json", args->json, "Print one JSON object");
  command->callback([args] { run(*args); });
  return command;
}

}  // namespace trireme
