// Stubs for -DTRIREME_SERVING=OFF: the commands of commands/serving/ refuse with an InputError.
#include <CLI/CLI.hpp>

#include "commands/bench.h"
#include "commands/serving/route.h"
#include "commands/serving/serve.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

CLI::App* add_absent_command(CLI::App& parent, const std::string& name) {
  CLI::App* command =
      parent.add_subcommand(name, "Not in this program: it was built without the server");
  command->allow_extras();
  command->callback([name] {
    fail_input("this program was built without the server (-DTRIREME_SERVING=OFF), so it has no ",
               name, "; build it again with -DTRIREME_SERVING=ON");
  });
  return command;
}

}  // namespace

CLI::App* add_serve_command(CLI::App& parent, const CommandLine&) {
  return add_absent_command(parent, "serve");
}

CLI::App* add_route_command(CLI::App& app) { return add_absent_command(app, "route"); }

CLI::App* add_bench_serve(CLI::App& parent) { return add_absent_command(parent, "serve"); }

}  // namespace trireme
