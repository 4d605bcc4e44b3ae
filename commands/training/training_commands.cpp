#include "commands/training/training_commands.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>
#include <optional>

#include "commands/command_line.h"
#include "commands/connect.h"
#include "commands/rank_options.h"
#include "commands/training/key_flags.h"
#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "engine/ops/backend/instruction_set.h"
#include "parallel/agree.h"
#include "parallel/supervised_ranks.h"
#include "training/data/examples/finetune_data.h"
#include "training/run/pretrain.h"
#include "training/run/run_facts.h"
#include "training/sites/local_sites.h"

namespace trireme {
namespace {

struct TrainingArguments {
  std::string config;
  std::vector<std::string> overrides;
  PretrainOptions options;
  int ranks = 0;
  int sites = 0;
};

// Checks that the configuration is of the command's kind.
void check_kind(const RunConfig& config, bool finetune) {
  if (finetune && !config.finetune.enabled)
    fail_input("finetune.train_file: is required: the training examples");
  if (!finetune && config.finetune.enabled)
    fail_input("the configuration has a section finetune: run it with trireme finetune");
}

// Words of this command line without --sites.
std::vector<std::string> command_of_a_site(const CommandLine& line) {
  std::vector<std::string> words = own_command(line.argc, line.argv), kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--sites")
      ++i;
    else if (!words[i].starts_with("--sites="))
      kept.push_back(words[i]);
  }
  return kept;
}

// Signal by which a request is passed on to a site; 0: none.
int signal_of(StopRequest request) {
  switch (request) {
    case StopRequest::kNone: return 0;
    case StopRequest::kSave: return SIGUSR1;
    case StopRequest::kSaveAndStop: return SIGUSR2;
  }
  TRIREME_UNREACHABLE();
}

// Starts the sites of --sites, after the configuration of the first one has been checked.
void run_sites(const TrainingArguments& args, const CLI::App& command, const CommandLine& line,
               bool finetune) {
  SignalRequests signals;
  LocalSites sites{
      .sites = args.sites, .ranks = std::max(1, args.ranks), .command = command_of_a_site(line)};
  std::vector<std::string> overrides = with_key_flags(command, args.overrides);
  for (const std::string& key : keys_of_local_site(sites, 0, "127.0.0.1:1", "none"))
    if (!key.starts_with("output_dir=") && !key.starts_with("cpu.")) overrides.push_back(key);
  const RunConfig config = load_run_config(args.config, overrides, sites.ranks, count_sequences);
  check_kind(config, finetune);
  sites.output_dir = config.output_dir;
  sites.divides_cores = config.threads_per_rank == 0;
  signals.runs_begin();
  const int code = run_local_sites(sites, [&] { return signal_of(signals.take()); });
  if (code != 0) throw CLI::RuntimeError(code);
}

void run(TrainingArguments args, const CLI::App& command, const CommandLine& line, bool finetune) {
  if (args.sites > 1) return run_sites(args, command, line, finetune);
  SignalRequests signals;
  RunConfig config;
  RankFacts facts = facts_of_command(command);
  std::optional<int> ended;
  before_connecting([&] { ended = run_supervised_ranks(args.ranks, line.argc, line.argv); });
  if (ended.has_value()) {
    if (*ended != 0) throw CLI::RuntimeError(*ended);
    return;
  }
  before_connecting([&] {
    // The number of ranks is known before they connect, so that a bad configuration fails early.
    config = load_run_config(args.config, with_key_flags(command, args.overrides),
                             detect_launcher().ranks, [&](const RunConfig& read_so_far) {
                               const int threads =
                                   std::max(1, available_cores() / detect_launcher().ranks);
                               args.options.finetune = open_finetune_data(read_so_far, threads);
                               return args.options.finetune->train->samples_per_epoch();
                             });
    check_kind(config, finetune);
    limit_instruction_set(parse_isa(config.isa));
    if (detect_launcher().ranks > 1) facts.merge(run_facts(config));
  });
  std::unique_ptr<World> world = connect_ranks(world_options(config.comm), facts);
  const ExitCode code = pretrain(config, *world, args.options, signals);
  world.reset();  // disconnects normally: a requested stop is not a failure
  if (code != ExitCode::kDone) throw CLI::RuntimeError(static_cast<int>(code));
}

void add_training_command(CLI::App* command, const CommandLine& line, bool finetune) {
  auto args = std::make_shared<TrainingArguments>();
  command
      ->add_option("--config", args->config,
                   "Run configuration (docs/reference/config-reference.md)")
      ->required()
      ->type_name("FILE");
  command->add_option("--set", args->overrides, "Override a key: --set optimizer.params.lr=1e-3")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--resume", args->options.resume,
          "auto: continue the run in output_dir, or start it; PATH: continue from this checkpoint")
      ->type_name("auto|PATH");
  command->add_flag(
      "--validate", args->options.validate_only,
      "Check configuration and data, print the memory that each rank needs, and exit");
  add_ranks_option(*command, args->ranks);
  command
      ->add_option("--sites", args->sites,
                   "Start so many sites on this machine, jobs of their own of --ranks ranks each, "
                   "and their rendezvous; for trials")
      ->check(CLI::Range(2, 1024))
      ->type_name("N");
  command->footer(
      "Signals: SIGUSR1 saves and continues; SIGUSR2, Ctrl-C, SIGTERM, SIGHUP and a closed "
      "standard output save and stop (exit code 3).\nUnder your own mpirun, send SIGUSR2 to "
      "mpirun, which forwards it: after other signals it kills the ranks within a second or "
      "two.\nSeveral ranks: --ranks N here, or mpirun -n N trireme ..., srun, torchrun "
      "variables.\nEvery key of the configuration is also a flag: --train-steps 10, "
      "--optimizer-params-lr 1e-3.");
  accept_key_flags(*command);
  command->callback([args, command, line, finetune] { run(*args, *command, line, finetune); });
}

}  // namespace

void add_training_commands(CLI::App& app, const CommandLine& line) {
  add_training_command(app.add_subcommand("pretrain", "Train a model from a JSON configuration"),
                       line, false);
  add_training_command(app.add_subcommand("finetune", "Fine-tune a saved model on examples"), line,
                       true);
}

}  // namespace trireme
