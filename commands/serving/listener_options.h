// Options of the HTTP listener, API keys and TLS, shared by `trireme serve` and `trireme route`.
#pragma once

#include <string>
#include <vector>

#include "serving/http/server/server.h"

namespace CLI {
class App;
}

namespace trireme {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> keys, key_files, admin_keys, admin_key_files;
  bool insecure = false;
  TlsFiles tls;
  int64_t connections = HttpLimits{}.connections;
  int64_t connections_per_address = HttpLimits{}.connections_per_address;
  int shutdown_seconds = 60;             // drain timeout after a stop signal
  std::string metrics_access = "admin";  // "admin" or "open": who may read /metrics
  std::vector<std::string> origins;      // allowed origins of web pages
};

// Adds --host, --port, --insecure, --ssl-certfile, --ssl-keyfile, --max-connections,
// --max-connections-per-address, --shutdown-timeout, --api-key, --api-key-file and
// --allowed-origins.
void add_listener_options(CLI::App& command, ListenerOptions& options);
// Adds --admin-api-key, --admin-api-key-file and --metrics-access.
void add_admin_key_options(CLI::App& command, ListenerOptions& options);

// Reads the key files and adds their keys to `options`. InputError if a file cannot be read.
void read_key_files(ListenerOptions& options);

// Configuration of the HTTP server. InputError if only one of the two TLS files is given or one is
// a directory, named FIFO or device, if an API key is empty, or if an allowed origin is not valid.
HttpConfig http_config(const ListenerOptions& options);

// Prints "listening on URL" to standard output. port: the actual port, also if options.port is 0.
// The process that started the server may wait for this line.
void print_listening(const ListenerOptions& options, int port);

// Waits until all requests have finished, the drain timeout expires, or a second stop signal
// arrives. Returns false if some requests have not finished.
bool drain_requests(const ListenerOptions& options, HttpServer& server);

}  // namespace trireme
