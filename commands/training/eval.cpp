#include "commands/training/eval.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/command_line.h"
#include "commands/connect.h"
#include "commands/model_option.h"
#include "commands/rank_options.h"
#include "commands/whole_number.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "training/eval/evaluate_run.h"

namespace trireme {
namespace {

struct EvalArguments {
  EvaluateOptions options;
  int ranks = 0;
  bool json = false;
};

nlohmann::ordered_json to_json(const EvaluateReport::Set& set) {
  return {{"data", set.data},
          {"tokens", set.result.tokens},
          {"loss", set.result.loss},
          {"perplexity", std::exp(set.result.loss)}};
}

// Prints the report in the format of docs/reference/metrics.md. A set without a name is listed
// under the empty name.
void print_json(const EvaluateReport& report) {
  nlohmann::ordered_json out = {{"checkpoint", report.checkpoint}};
  for (const EvaluateReport::Set& set : report.sets) {
    if (set.name.empty()) out.update(to_json(set));
    out["sets"][set.name] = to_json(set);
  }
  if (!report.metrics.empty()) {
    out["questions"] = report.questions;
    out["texts"] = report.texts;
    out["truncated"] = report.truncated;
  }
  for (const TaskMetric& metric : report.metrics) {
    out[metric.name] = metric.value;
    if (metric.standard_error) out[metric.name + "_stderr"] = *metric.standard_error;
  }
  out["seconds"] = report.seconds;
  std::printf("%s\n", out.dump().c_str());
}

void print(const EvaluateReport& report) {
  std::printf("checkpoint  %s\n", report.checkpoint.c_str());
  for (const EvaluateReport::Set& set : report.sets) {
    if (!set.name.empty()) std::printf("set         %s\n", set.name.c_str());
    const double loss = set.result.loss;
    std::printf(
        "data        %s\ntokens      %lld\nloss        %.6f nats per token\nperplexity  %.4f\n",
        set.data.c_str(), static_cast<long long>(set.result.tokens), loss, std::exp(loss));
  }
  for (const TaskMetric& metric : report.metrics) {
    std::printf("%-15s %.6f", metric.name.c_str(), metric.value);
    if (metric.standard_error) std::printf(" +- %.6f", *metric.standard_error);
    std::printf("\n");
  }
  std::printf("time        %.1f s\n", report.seconds);
}

void run_eval(const EvalArguments& args, const CLI::App& command, const CommandLine& line) {
  before_connecting([&] { ensure_ranks(args.ranks, line.argc, line.argv); });
  const std::unique_ptr<World> world =
      connect_ranks(world_options(CommConfig{}), facts_of_command(command));
  const EvaluateReport report = evaluate_checkpoint(args.options, *world);
  if (world->rank() == 0 && !args.options.samples.empty())
    write_file_atomically(args.options.samples, report.samples);
  if (world->rank() == 0) args.json ? print_json(report) : print(report);
}

CLI::Option* add_task_options(CLI::App& command, EvaluateOptions& o) {
  CLI::Option* task =
      command
          .add_option("--task", o.task,
                      "Task in JSON lines: multiple-choice questions (accuracy), or "
                      "texts (perplexity), scored as in lm-evaluation-harness")
          ->type_name("FILE");
  command
      .add_option_function<std::string>(
          "--target-delimiter", [&o](const std::string& text) { o.delimiter = text; },
          "Text between a context and a choice (default: a space, or nothing if a chat template "
          "rendered the context)")
      ->needs(task);
  command
      .add_flag("--add-bos", o.add_bos,
                "Begin every context with the tokenizer's BOS token (Gemma models expect it)")
      ->needs(task);
  CLI::Option* chat =
      command
          .add_flag("--apply-chat-template", o.apply_chat_template,
                    "Render every context as a user message with the model's chat template")
          ->needs(task);
  command
      .add_option("--chat-template", o.chat_template,
                  "Chat template for --apply-chat-template: a file, a tokenizer directory that has "
                  "one, or the name of one of the model's templates (default: the model's)")
      ->type_name("PATH")
      ->needs(chat);
  command
      .add_option("--samples", o.samples,
                  "Output file for the log-likelihoods of each record, as JSON lines")
      ->type_name("FILE")
      ->needs(task);
  command.add_option("--tokenizer", o.tokenizer, "Tokenizer of the task (default: the model's)")
      ->type_name("PATH")
      ->needs(task);
  return task;
}

}  // namespace

CLI::App* add_eval_command(CLI::App& app, const CommandLine& line) {
  auto args = std::make_shared<EvalArguments>();
  CLI::App* command =
      app.add_subcommand("eval", "Measure the loss of a saved model, or its metrics on a task");
  EvaluateOptions& o = args->options;
  add_model_option(*command, o.model);
  CLI::Option* data =
      command
          ->add_option("--data", o.data, "Token file prefix (default: the run's validation data)")
          ->type_name("PREFIX");
  CLI::Option* validation_set =
      command
          ->add_option("--validation-set", o.validation_set,
                       "Name of one of the run's validation sets (default: all of them)")
          ->type_name("NAME")
          ->excludes(data);
  CLI::Option* task = add_task_options(*command, o)->excludes(data)->excludes(validation_set);
  add_adapter_option(*command, o.adapter);
  add_device_option(*command, o.device);
  add_dtype_option(*command, o.dtype);
  add_quantization_option(*command, o.quantization);
  command
      ->add_option("--sequence-length", o.sequence_length,
                   "Tokens per sequence (default: as trained)")
      ->check(whole_number(1));
  command
      ->add_option("--micro-batch-size", o.micro_batch_size,
                   "Sequences per forward pass on each rank (default: as trained)")
      ->check(whole_number(1));
  command
      ->add_option("--max-samples", o.max_samples,
                   "Sequences of each set, evenly spaced (default: all)")
      ->check(whole_number(1))
      ->excludes(task);
  add_layout_options(*command, o.layout, LayoutUse::kAll);
  command->add_flag("--json", args->json, "Print one JSON object");
  add_ranks_option(*command, args->ranks);
  command->callback([args, command, line] { run_eval(*args, *command, line); });
  return command;
}

}  // namespace trireme
