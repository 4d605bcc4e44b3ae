// Parser for untrusted JSON: the text must be exactly one value, keys of an object are unique,
// nesting and the number of keys are bounded. For .cpp files only (it includes the JSON library).
// Parsing is compiled once, in strict_json.cpp: it takes half the compile time of a file that uses
// JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/io/json_limits.h"

namespace trireme {

// JsonType: nlohmann::json or nlohmann::ordered_json (keeps the order; finding a key is linear in
// their number). `what` is the prefix of messages: "shard.safetensors: header". O(n log n) for any
// n bytes.
template <class JsonType>
JsonType parse_strict_json(std::string_view json_text, const std::string& what,
                           const JsonLimits& limits = {});

// Value as the library parses it, for our own texts and for lines of data: the last of equal keys
// wins, any depth. If not JSON: a value with is_discarded().
template <class JsonType>
JsonType parse_json_text(std::string_view json_text);

// Whether the only fault of a text is one outside JSON's grammar: a \u escape of half a surrogate
// pair, which is not a character.
bool has_lone_surrogate(std::string_view json_text);

// Unsigned integer that fits int64_t; InputError naming `what` for anything else.
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
