// Placeholders of the commands in commands/serving/ for a build with -DTRIREME_SERVING=OFF.
#include "commands/absent_command.h"
#include "commands/bench/bench.h"
#include "commands/serving/route.h"
#include "commands/serving/serve.h"

namespace trireme {
namespace {

const AbsentPart kServer{"the server", "TRIREME_SERVING"};

}  // namespace

CLI::App* add_serve_command(CLI::App& parent, const CommandLine&) {
  return add_absent_command(parent, "serve", kServer);
}

CLI::App* add_route_command(CLI::App& app) { return add_absent_command(app, "route", kServer); }

CLI::App* add_bench_serve(CLI::App& parent) { return add_absent_command(parent, "serve", kServer); }

}  // namespace trireme
