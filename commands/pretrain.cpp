#include "training/pretrain.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "commands/commands.h"
#include "commands/key_flags.h"
#include "commands/pretrain.h"
#include "commands/rank_options.h"
#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"

namespace trireme {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  PretrainOptions options;
  int ranks = 0;
};

void run(const Arguments& args, const CLI::App& command, const CommandLine& line) {
  SignalRequests signals;
  RunConfig config;
  before_connecting([&] {
    ensure_ranks(args.ranks, line.argc, line.argv);
    // The number of ranks is known before they are connected: a bad configuration costs nothing.
    config = load_run_config(args.config, with_key_flags(command, args.overrides),
                             detect_launcher().ranks);
    set_active_isa(parse_isa(config.isa));
  });
  std::unique_ptr<World> world;
  before_connecting([&] { world = make_world(world_options(config.comm)); });
  set_log_rank(world->rank());
  const ExitCode code = pretrain(config, *world, args.options, signals);
  world.reset();  // in peace: a stop by request is no failure
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
      "Signals: SIGUSR1 saves and goes on, SIGUSR2 saves and stops (exit code 3). With one process "
      "Ctrl-C saves and stops too;\n"
      "with several ranks it ends them: `kill -USR2` the mpirun process, which hands the signal "
      "on.\n"
      "Several ranks: --ranks N here, or mpirun -n N trireme pretrain ..., srun, torchrun "
      "variables.\n"
      "Every key of the configuration is also a flag: --train-steps 10, --optimizer-params-lr "
      "1e-3.");
  accept_key_flags(*command);
  command->callback([args, command, line] { run(*args, *command, line); });
  return command;
}

}  // namespace trireme
