#include "commands/eval.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "commands/rank_options.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "training/evaluate_run.h"

namespace trireme {
namespace {

struct Arguments {
  EvaluateOptions options;
  int ranks = 0;
  bool json = false;
};

void print(const EvaluateReport& report, bool json) {
  const double loss = report.result.loss;
  if (json) {
    const nlohmann::ordered_json out = {
        {"checkpoint", report.checkpoint}, {"data", report.data},
        {"tokens", report.result.tokens},  {"loss", loss},
        {"perplexity", std::exp(loss)},    {"seconds", report.seconds}};
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  std::printf(
      "checkpoint  %s\ndata        %s\ntokens      %lld\nloss        %.6f nats a token\n"
      "perplexity  %.4f\ntime        %.1f s\n",
      report.checkpoint.c_str(), report.data.c_str(), static_cast<long long>(report.result.tokens),
      loss, std::exp(loss), report.seconds);
}

void run(const Arguments& args, const CommandLine& line) {
  before_connecting([&] { ensure_ranks(args.ranks, line.argc, line.argv); });
  std::unique_ptr<World> world;
  before_connecting([&] { world = make_world(world_options(CommConfig{})); });
  set_log_rank(world->rank());
  const EvaluateReport report = evaluate_checkpoint(args.options, *world);
  if (world->rank() == 0) print(report, args.json);
}

}  // namespace

CLI::App* add_eval_command(CLI::App& app, const CommandLine& line) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Measure the loss of a saved model");
  EvaluateOptions& o = args->options;
  command->add_option("model", o.model, "Run directory or checkpoint")
      ->required()
      ->type_name("PATH");
  command->add_option("--data", o.data, "Token file prefix (default: the run's validation data)")
      ->type_name("PREFIX");
  command
      ->add_option("--sequence-length", o.sequence_length,
                   "Tokens a sequence (default: as trained)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--micro-batch-size", o.micro_batch_size,
                   "Sequences at a time on each rank (default: as trained)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-samples", o.max_samples, "Stop after this many sequences (default: all)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--tensor-parallel", o.tensor_parallel,
                   "Ranks that split every matrix (default: 1)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--pipeline-parallel", o.pipeline_parallel,
                   "Stages of neighbouring layers (default: 1)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", args->json, "Print one JSON object");
  add_ranks_option(*command, args->ranks);
  command->callback([args, line] { run(*args, line); });
  return command;
}

}  // namespace trireme
