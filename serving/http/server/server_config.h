// Configuration of a server of HTTP/1.1, and what it reports of a request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "serving/http/server/allowed_origins.h"
#include "serving/http/server/api_keys.h"
#include "serving/http/server/limits.h"

namespace trireme {

struct TlsFiles {
  std::string certificate, key;  // PEM: the chain, the private key
};

struct HttpConfig {
  std::string host = "127.0.0.1";  // an address, of IPv6 with brackets or without, or "localhost"
  int port = 8000;                 // 0: any free one
  int threads = 2;                 // that serve connections
  int workers = 2;                 // that read requests and tokenize
  HttpLimits limits = {};
  std::optional<TlsFiles> tls = {};
  ApiKeys keys = {};
  AllowedOrigins origins = {};
  // Without keys only the machine itself may be served, under its own names (a page from elsewhere
  // could have its name point here), unless this is set.
  bool insecure = false;
};

// A request with its response, for metrics. Passed on a thread that serves connections.
struct RequestSummary {
  std::string handler;  // the route's path; "none"
  std::string method;
  int status = 0;
  double seconds = 0;
  int64_t body_bytes = 0;
};

}  // namespace trireme
