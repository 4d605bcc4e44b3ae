#include "commands/serving/route.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <thread>

#include "commands/serving/listener_options.h"
#include "commands/stop_signals.h"
#include "engine/core/file_limit.h"
#include "engine/core/heap_trim.h"
#include "engine/io/input_file.h"
#include "engine/observe/log.h"
#include "serving/router/router.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kOtherFiles = 1024;  // for kept connections and health checks

struct RouteArguments {
  ListenerOptions listener;
  std::vector<std::string> servers;
  std::string ca_file;
  BalanceRule balance;
  int silence_seconds = 600, health_failures = 3;
  double health_interval = 1, health_timeout = 2;
};

milliseconds milliseconds_of(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1e3));
}

RouterConfig router_config(const RouteArguments& args) {
  RouterConfig config{.ca_file = args.ca_file,
                      .balance = args.balance,
                      .silence = std::chrono::seconds(args.silence_seconds),
                      .health_interval = milliseconds_of(args.health_interval),
                      .health_timeout = milliseconds_of(args.health_timeout),
                      .health_failures = args.health_failures};
  if (args.servers.size() > kMaxServers)
    fail_input("--server: ", args.servers.size(), " servers, expected at most ", kMaxServers);
  std::set<std::string> known;
  for (const std::string& url : args.servers) {
    config.servers.push_back(parse_server_address(url, "--server"));
    if (!known.insert(config.servers.back().url()).second)
      fail_input("--server ", url, " is given twice");
  }
  return config;
}

void run(RouteArguments args) {
  read_key_files(args.listener);
  require_file_or_pipe(args.ca_file);
  RouterConfig config = router_config(args);
  const size_t servers = config.servers.size();
  const StopSignals signals;
  raise_file_limit(2 * args.listener.connections + kOtherFiles);  // client and server side each
  Router router(std::move(config));
  HttpServer server(http_config(args.listener), router.routes(),
                    [&](const RequestSummary& summary) { router.count(summary); });
  log_info("routing to ", servers, " servers");
  // Warns about addresses without a server; servers may still start later.
  if (!router.wait_for_a_server(milliseconds_of(args.health_timeout)))
    log_warning("no server responds yet: requests are refused with 503 until one does");
  print_listening(args.listener, server.port());
  for (HeapTrim heap; StopSignals::count() == 0; heap.poll())
    std::this_thread::sleep_for(milliseconds(50));
  router.close();
  drain_requests(args.listener, server);
  server.stop();
}

void add_router_options(CLI::App& command, RouteArguments& args) {
  command.add_option("--server", args.servers, "URL of a server, http://HOST:PORT (repeatable)")
      ->required()
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("URL");
  command
      .add_option("--ca-file", args.ca_file,
                  "CA certificates for servers over TLS, in addition to the system's (PEM)")
      ->type_name("FILE");
  command
      .add_option("--timeout", args.silence_seconds,
                  "Maximum seconds without data from a server within a request")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  command.add_option("--health-interval", args.health_interval, "Seconds between health checks")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command
      .add_option("--health-timeout", args.health_timeout, "Timeout of a health check in seconds")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command
      .add_option(
          "--health-failures", args.health_failures,
          "Consecutive health checks without a response after which the requests in flight to "
          "that server are aborted")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void add_balance_options(CLI::App& command, BalanceRule& balance) {
  command
      .add_option("--cache-threshold", balance.cache_threshold,
                  "Minimum matched fraction of a prompt for its prefix to select the server")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--balance-abs-threshold", balance.absolute,
                  "Load difference in requests between the most and the least loaded server above "
                  "which the least loaded one is chosen, whatever the prompt")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command
      .add_option("--balance-rel-threshold", balance.relative,
                  "Ratio of the highest to the lowest load that must be exceeded too, in addition "
                  "to --balance-abs-threshold")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
}

}  // namespace

CLI::App* add_route_command(CLI::App& app) {
  auto args = std::make_shared<RouteArguments>();
  CLI::App* command =
      app.add_subcommand("route", "Load balancer for several servers of OpenAI's API");
  add_router_options(*command, *args);
  add_listener_options(*command, args->listener);
  add_admin_key_options(*command, args->listener);
  add_balance_options(*command, args->balance);
  command->footer(
      "Cache-aware routing: a request is sent to the server that received the longest prefix of "
      "its prompt, or to the least loaded server if that prefix is short or the loads are out of "
      "balance.\nMore: docs/guide/serving.md");
  command->callback([args] { run(*args); });
  return command;
}

}  // namespace trireme
