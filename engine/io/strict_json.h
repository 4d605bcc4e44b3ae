// JSON from files that may be hostile: the whole text must be one value, objects have no key twice,
// nesting and the number of keys are bounded. For .cpp files only (it includes the JSON library).
// Parsing is compiled once, in strict_json.cpp: it is half of what a file that uses JSON takes to
// compile.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/io/json_limits.h"

namespace trireme {

// JsonType: nlohmann::json or nlohmann::ordered_json (order matters; finding a key is linear in
// their number). `what` begins the message: "shard.safetensors: header". Takes O(n log n) for n
// bytes, whatever they are.
template <class JsonType>
JsonType parse_strict_json(std::string_view json_text, const std::string& what,
                           const JsonLimits& limits = {});

// The value as the library reads it, for texts of our own and for lines of data: of equal keys the
// last, any depth. Not JSON: a value that is_discarded().
template <class JsonType>
JsonType parse_json_text(std::string_view json_text);

// Whether a text is no value for one reason only that JSON's grammar does not know: a \u escape of
// half a surrogate pair, which is no character.
bool has_lone_surrogate(std::string_view json_text);

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
