// Endpoint of the HTTP API: one row with its path, access, documentation and request fields.
//
// These are derived from endpoints(): routes, access control, admission, metric labels,
// /openapi.json, the reference page, and the paths that the router relays. serving/http/service has
// a handler for each endpoint.
#pragma once

#include <span>

#include "serving/api/field.h"

namespace trireme {

// API key that a request needs. kOpen: none. kUser: any, or none if the server has no keys. kAdmin:
// an admin's. kMetrics: an admin's, unless the server has no keys or opens its metrics to all
// clients. Paths without a route need kUser.
enum class Access { kOpen, kUser, kAdmin, kMetrics };

struct Endpoint {
  const char* method;  // "GET", which serves HEAD too, or "POST"
  const char* path;    // exact; a final "/*" matches all paths below it
  Access access = Access::kUser;
  const char* summary = "";                       // empty: not in the OpenAPI document
  std::span<const Field> (*fields)() = nullptr;   // of the JSON body; nullptr: no body is read
  const char* content_type = "application/json";  // of a successful response
  bool streams = false;                           // can respond with server-sent events
  // Rejects requests before reading their body while the engine has failed or the queue is full.
  bool is_admitted = false;
  const char* conflict = "";  // documented cause of status 409; empty: never returned
};

// All endpoints, in the order of the documentation.
std::span<const Endpoint* const> endpoints();

}  // namespace trireme
