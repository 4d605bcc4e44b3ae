#include "serving/engine/generate.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands/commands.h"
#include "commands/generate.h"
#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "engine/text/tokenizer.h"
#include "training/loaded_model.h"
#include "training/run_directory.h"
#include "training/train_checkpoint.h"

namespace trireme {
namespace {

struct Arguments {
  std::string model;
  std::string prompt = "\n";
  std::string tokenizer;
  GenerateOptions options;
  int threads = 0;
  int samples = 1;
};

void run(const Arguments& args) {
  check_sampling_params(args.options.sampling);
  const NewestCheckpoint newest = find_checkpoint(checkpoint_place(args.model));
  for (const std::string& why : newest.skipped) log_warning(why);
  LoadedModel loaded(newest.directory);
  loaded.load();
  const std::string spec =
      args.tokenizer.empty() ? loaded.run_config().data.tokenizer : args.tokenizer;
  if (spec.empty())
    fail_input("the run names no tokenizer (data.tokenizer); give --tokenizer byte or a .model");
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(spec);
  if (tokenizer->vocab_size() > loaded.run_config().model.vocab_size)
    fail_input("tokenizer ", spec, " has ", tokenizer->vocab_size(), " ids, the model only ",
               loaded.run_config().model.vocab_size);
  const int threads = args.threads > 0 ? args.threads : available_cores();
  pin_team(0, threads);
  Ctx ctx(threads, "activations");
  const std::vector<int32_t> prompt = tokenizer->encode(args.prompt);
  for (int n = 0; n < args.samples; ++n) {
    GenerateOptions options = args.options;
    options.sampling.seed += static_cast<uint64_t>(n);
    options.stop_token = tokenizer->eod_id();
    options.vocab_size = tokenizer->vocab_size();
    StreamDecoder decoder(*tokenizer);
    if (n > 0) std::printf("\n---\n");
    std::fputs(args.prompt.c_str(), stdout);
    for (int32_t id : prompt) decoder.push(id);
    generate(loaded.model(), loaded.parameters(), ctx, prompt, options, [&](int32_t id) {
      std::fputs(decoder.push(id).c_str(), stdout);
      std::fflush(stdout);
      return true;
    });
    std::printf("%s\n", decoder.finish().c_str());
  }
}

}  // namespace

CLI::App* add_generate_command(CLI::App& app, const CommandLine&) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a saved model");
  SamplingParams& s = args->options.sampling;
  command->add_option("model", args->model, "Run directory or checkpoint")
      ->required()
      ->type_name("PATH");
  command->add_option("--prompt", args->prompt, "Text to continue (default: a line break)");
  command->add_option("--max-new-tokens", args->options.max_new_tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", s.temperature, "0 takes the most probable token")
      ->capture_default_str();
  command->add_option("--top-k", s.top_k, "Sample from this many tokens; 0: all")
      ->capture_default_str();
  command->add_option("--top-p", s.top_p, "Sample from the tokens that reach this probability")
      ->capture_default_str();
  command->add_option("--min-p", s.min_p, "Drop tokens below this share of the most probable one")
      ->capture_default_str();
  command->add_option("--seed", s.seed, "Same seed, same text")->capture_default_str();
  command->add_option("--samples", args->samples, "Texts to generate")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--tokenizer", args->tokenizer, "byte or a .model (default: the run's)");
  command->add_option("--threads", args->threads, "Threads (default: all cores)")
      ->check(CLI::PositiveNumber);
  command->callback([args] { run(*args); });
  return command;
}

}  // namespace trireme
