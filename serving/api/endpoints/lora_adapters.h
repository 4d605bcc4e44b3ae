// POST /v1/load_lora_adapter and POST /v1/unload_lora_adapter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

// Adapter to load or unload.
struct AdapterRequest {
  // name: its model id; path: of its directory on the server, empty for unloading.
  std::string name, path;
  std::vector<std::string> unknown;  // unknown fields, which were ignored
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
AdapterRequest parse_load_adapter(std::string_view body, const RequestLimits& limits = {});
AdapterRequest parse_unload_adapter(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kLoadAdapterEndpoint, kUnloadAdapterEndpoint;

}  // namespace trireme
