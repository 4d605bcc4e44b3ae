#include "commands/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "engine/core/error.h"

namespace trireme {

int run_command_line(int argc, char** argv) {
  CLI::App app("Trains and serves transformer language models at any scale", "trireme");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace trireme
