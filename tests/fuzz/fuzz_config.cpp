// Arbitrary text as a run's configuration: refused, or it resolves to a configuration that reads
// back as itself.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "training/config/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  trireme::Json resolved;
  try {
    trireme::Json json =
        trireme::parse_json(std::string(reinterpret_cast<const char*>(data), size), "fuzzed");
    if (!json.is_object() || !json.contains("model") || !json["model"].is_object()) return 0;
    if (json["model"].size() == 1) return 0;  // a path: text of another file
    resolved = trireme::run_config_to_json(trireme::read_run_config(json, 2));
  } catch (const trireme::InputError&) {  // refused: expected
    return 0;
  }
  const trireme::Json again = trireme::run_config_to_json(trireme::resolved_run_config(resolved));
  TRIREME_CHECK(again == resolved, "resolved twice: ", resolved.dump(), " and ", again.dump());
  return 0;
}
