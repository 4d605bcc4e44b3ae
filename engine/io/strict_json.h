// JSON from files that may be hostile: the whole text must be one value, objects have no key twice,
// nesting and the number of keys are bounded. For .cpp files only (it includes the JSON library).
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"

namespace trireme {

struct JsonLimits {
  int depth = 32;
  size_t keys_per_object = 1 << 20;
};

// JsonType: nlohmann::json (many keys) or nlohmann::ordered_json (order matters, few keys: its
// insertion is linear in their number). `what` begins the message: "shard.safetensors: header".
template <class JsonType>
JsonType parse_strict_json(std::string_view json_text, const std::string& what,
                           const JsonLimits& limits = {}) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, typename JsonType::parse_event_t event, JsonType& parsed) {
    using Event = typename JsonType::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (depth >= limits.depth) fail_input(what, ": JSON is nested deeper than ", limits.depth);
    if (event == Event::key) {
      const std::string key = parsed.template get<std::string>();
      if (!keys.back().insert(key).second)
        fail_input(what, ": the key \"", key, "\" is there twice");
      if (keys.back().size() > limits.keys_per_object) {
        fail_input(what, ": more than ", limits.keys_per_object, " keys in one object");
      }
    }
    return true;
  };
  try {
    return JsonType::parse(json_text.begin(), json_text.end(), watch);
  } catch (const typename JsonType::exception& error) {
    fail_input(what, ": not valid JSON: ", error.what());
  }
}

// The unsigned value of an integer that fits int64_t; InputError naming `what` for anything else.
template <class JsonType>
int64_t strict_size(const JsonType& value, const std::string& what) {
  if (!value.is_number_unsigned() ||
      value.template get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail_input(what, " is ", value.dump().substr(0, 60),
               ", not a whole number from 0 to 9223372036854775807");
  }
  return value.template get<int64_t>();
}

}  // namespace trireme
