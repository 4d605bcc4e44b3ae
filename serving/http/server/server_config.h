// Configuration of an HTTP server, and the summary that it reports for each request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serving/http/server/allowed_origins.h"
#include "serving/http/server/api_keys.h"
#include "serving/http/server/limits.h"

namespace trireme {

struct TlsFiles {
  std::string certificate, key;  // PEM: certificate chain; private key
};

struct HttpConfig {
  std::string host = "127.0.0.1";  // IPv4, IPv6 with or without brackets, or "localhost"
  int port = 8000;                 // 0: any free port
  int threads = 2;                 // threads that serve connections
  int workers = 2;                 // threads of the WorkQueue: parse requests, tokenize
  HttpLimits limits = {};
  std::optional<TlsFiles> tls = {};
  ApiKeys keys = {};
  AllowedOrigins origins = {};
  // Allows serving other machines without API keys. If it is false and there are no keys, only a
  // loopback address may be bound, and only local host names are accepted, as protection against
  // DNS rebinding.
  bool insecure = false;
};

// Summary of a request and its response, for metrics. Reported on a thread that serves connections.
struct RequestSummary {
  std::string handler;  // path of the route, or "none"
  std::string method;
  int status = 0;          // 0: the peer disconnected before a response began
  double seconds = 0;      // from the complete head of the request to the end of the response
  int64_t body_bytes = 0;  // size of the request's body
};

}  // namespace trireme
