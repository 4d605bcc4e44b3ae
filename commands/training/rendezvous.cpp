#include "commands/training/rendezvous.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <thread>

#include "commands/stop_signals.h"
#include "engine/core/error.h"
#include "parallel/comm/secret_file.h"
#include "training/sites/rendezvous.h"

namespace trireme {
namespace {

struct RendezvousArguments {
  std::string listen = "127.0.0.1:29400";
  std::string secret_file, records;
};

void rendezvous(const RendezvousArguments& arguments) {
  const auto address = host_and_port(arguments.listen);
  if (!address || address->port < 0 || address->port > 65535)
    fail_input("--listen: \"", arguments.listen, "\" is not HOST:PORT, a port being 0 to 65535");
  StopSignals signals;
  Rendezvous hub({.host = address->host,
                  .port = address->port,
                  .secret = read_secret_file(arguments.secret_file),
                  .records = arguments.records});
  std::printf("rendezvous of sites at %s\n", hub.address().c_str());
  std::fflush(stdout);
  std::atomic<bool> stop = false, served = false;
  std::thread watching([&] {
    while (!served && StopSignals::count() == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  bool ended = false;
  try {
    ended = hub.run(stop);
  } catch (...) {
    served = true;
    watching.join();
    throw;
  }
  served = true;
  watching.join();
  std::printf(ended ? "the run has ended\n" : "stopped by a signal\n");
  if (!ended) throw CLI::RuntimeError(static_cast<int>(ExitCode::kStoppedSaved));
}

}  // namespace

CLI::App* add_rendezvous_command(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand(
      "rendezvous", "Add the updates of training sites that are jobs of their own");
  const auto arguments = std::make_shared<RendezvousArguments>();
  command
      ->add_option("--listen", arguments->listen,
                   "Address at which sites connect; port 0: any free one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  command
      ->add_option("--secret-file", arguments->secret_file,
                   "File whose first line is the secret of the sites, 16 to 4096 characters")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--records", arguments->records, "File that gets a JSON object for each round")
      ->type_name("FILE");
  command->footer(
      "Each site runs trireme pretrain with outer.sites, outer.site, outer.rendezvous and\n"
      "outer.secret_file. The rendezvous needs no configuration: it has that of the first site,\n"
      "and refuses sites that differ. It ends when all sites that are connected have left and at\n"
      "least one has reached the end of the run. SIGTERM and Ctrl-C stop it with exit code 3; it\n"
      "saves nothing, and sites then end with exit code 5.");
  command->callback([arguments] { rendezvous(*arguments); });
  return command;
}

}  // namespace trireme
