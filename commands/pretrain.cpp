#include "training/pretrain.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "commands/commands.h"
#include "commands/key_flags.h"
#include "commands/pretrain.h"
#include "commands/rank_options.h"
#include "engine/core/cpu.h"
#include "engine/observe/log.h"

namespace trireme {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  PretrainOptions options;
  int ranks = 0;
};

// The number of ranks is known before they are connected: a bad configuration costs nothing. Every
// rank reads the same file and finds the same mistakes; one says so.
RunConfig read_config(const Arguments& args, const CLI::App& command) {
  const LauncherInfo launcher = detect_launcher();
  try {
    return load_run_config(args.config, with_key_flags(command, args.overrides), launcher.ranks);
  } catch (const InputError&) {
    if (launcher.rank == 0) throw;
    // A launcher ends all ranks with the first that fails: rank 0 must have spoken by then.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    throw CLI::RuntimeError(static_cast<int>(ExitCode::kBadInput));
  }
}

void run(const Arguments& args, const CLI::App& command, const CommandLine& line) {
  ensure_ranks(args.ranks, line.argc, line.argv);
  const RunConfig config = read_config(args, command);
  set_active_isa(parse_isa(config.isa));
  const std::unique_ptr<World> world = make_world(world_options(config.comm));
  set_log_rank(world->rank());
  const ExitCode code = pretrain(config, *world, args.options);
  if (code != ExitCode::kDone) throw CLI::RuntimeError(static_cast<int>(code));
}

}  // namespace

CLI::App* add_pretrain_command(CLI::App& app, const CommandLine& line) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("pretrain", "Train a model from a JSON configuration");
  command->add_option("--config", args->config, "Run configuration (docs/config-reference.md)")
      ->required()
      ->type_name("FILE");
  command->add_option("--set", args->overrides, "Override a key: --set optimizer.params.lr=1e-3")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--resume", args->options.resume,
                   "auto: continue the run in output_dir, or start it; or a checkpoint")
      ->type_name("auto|PATH");
  command->add_flag("--validate", args->options.validate_only,
                    "Check everything, print the bytes each rank will need, train nothing");
  add_ranks_option(*command, args->ranks);
  command->footer(
      "Signals: SIGUSR1 saves and goes on, SIGUSR2 saves and stops (exit code 3), Ctrl-C the "
      "same.\n"
      "Several ranks: --ranks N here, or mpirun -n N trireme pretrain ..., srun, torchrun "
      "variables.\n"
      "Every key of the configuration is also a flag: --train-steps 10, --optimizer-params-lr "
      "1e-3.");
  accept_key_flags(*command);
  command->callback([args, command, line] { run(*args, *command, line); });
  return command;
}

}  // namespace trireme
