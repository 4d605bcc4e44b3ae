#include "commands/serving/listener_options.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "commands/stop_signals.h"
#include "commands/whole_number.h"
#include "engine/io/input_file.h"
#include "engine/observe/log.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

// An IPv6 address is in brackets in a URL.
std::string name_in_url(const std::string& host) {
  const bool bare = host.find(':') != std::string::npos && !host.starts_with("[");
  return bare ? concat("[", host, "]") : host;
}

CLI::Option* add_repeatable(CLI::App& command, const char* name, std::vector<std::string>& to,
                            const char* help) {
  return command.add_option(name, to, help)->take_all()->allow_extra_args(false);
}

}  // namespace

void add_listener_options(CLI::App& command, ListenerOptions& options) {
  command.add_option("--host", options.host, "Address to listen on")->capture_default_str();
  command
      .add_option("--port", options.port,
                  "Port to listen on; 0: any free port, printed at the start")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  add_repeatable(
      command, "--api-key", options.keys,
      "API key that clients send as Authorization: Bearer KEY (repeatable); without keys "
      "the server listens on loopback addresses only");
  add_repeatable(command, "--api-key-file", options.key_files,
                 "File of API keys, one per line; # begins a comment line (repeatable)")
      ->type_name("FILE");
  command.add_flag("--insecure", options.insecure,
                   "Allow addresses other than loopback without API keys: every client that "
                   "reaches the port is served");
  add_repeatable(command, "--allowed-origins", options.origins,
                 "CORS origin whose web pages may use the server, such as https://example.org "
                 "(repeatable, or a comma-separated list); \"*\": all origins (default: none)")
      ->type_name("ORIGIN")
      ->delimiter(',');
  command.add_option("--ssl-certfile", options.tls.certificate, "TLS certificate chain, PEM")
      ->type_name("FILE");
  command.add_option("--ssl-keyfile", options.tls.key, "TLS private key, PEM")->type_name("FILE");
  command
      .add_option("--max-connections", options.connections,
                  "Maximum open connections; further ones are refused with 503")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--max-connections-per-address", options.connections_per_address,
                  "Maximum open connections per client address; clients of a proxy share the "
                  "proxy's address")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--shutdown-timeout", options.shutdown_seconds,
                  "Seconds for requests to finish after SIGTERM or SIGINT, before they are aborted")
      ->capture_default_str()
      ->check(whole_number(0));
}

void add_admin_key_options(CLI::App& command, ListenerOptions& options) {
  add_repeatable(command, "--admin-api-key", options.admin_keys,
                 "API key of an administrator: also allows metrics and routes that change the "
                 "server (repeatable)");
  add_repeatable(command, "--admin-api-key-file", options.admin_key_files,
                 "File of administrators' API keys, one per line (repeatable)")
      ->type_name("FILE");
  command
      .add_option("--metrics-access", options.metrics_access,
                  "Access to /metrics: admin: requires an administrator's key if there are keys; "
                  "open: allows every client")
      ->check(CLI::IsMember({"admin", "open"}))
      ->capture_default_str();
}

void read_key_files(ListenerOptions& options) {
  const auto read = [](const std::vector<std::string>& files, std::vector<std::string>& keys) {
    for (const std::string& file : files) {
      require_regular_file(file);
      std::vector<std::string> more = read_api_keys(file);
      keys.insert(keys.end(), more.begin(), more.end());
    }
  };
  read(options.key_files, options.keys);
  read(options.admin_key_files, options.admin_keys);
}

HttpConfig http_config(const ListenerOptions& options) {
  HttpConfig http;
  http.host = options.host;
  http.port = options.port;
  http.insecure = options.insecure;
  http.limits.connections = options.connections;
  http.limits.connections_per_address = options.connections_per_address;
  http.keys = ApiKeys(options.keys, options.admin_keys, options.metrics_access == "open");
  http.origins = AllowedOrigins(options.origins);
  if (options.tls.certificate.empty() != options.tls.key.empty())
    fail_input("--ssl-certfile and --ssl-keyfile must be given together");
  require_file_or_pipe(options.tls.certificate);
  require_file_or_pipe(options.tls.key);
  if (!options.tls.certificate.empty()) http.tls = options.tls;
  return http;
}

void print_listening(const ListenerOptions& options, int port) {
  std::printf("listening on %s://%s:%d\n", options.tls.key.empty() ? "http" : "https",
              name_in_url(options.host).c_str(), port);
  std::fflush(stdout);
}

bool drain_requests(const ListenerOptions& options, HttpServer& server) {
  log_info("stopping: waiting for ", server.counts().exchanges, " requests to finish; ",
           "a second signal aborts them");
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(options.shutdown_seconds);
  bool done = server.drain(milliseconds(0));
  while (!done && StopSignals::count() < 2 && std::chrono::steady_clock::now() < end)
    done = server.drain(milliseconds(50));
  if (!done) log_warning("aborting ", server.counts().exchanges, " unfinished requests");
  return done;
}

}  // namespace trireme
