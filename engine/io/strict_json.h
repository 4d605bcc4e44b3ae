// Parser for untrusted JSON: the text must be exactly one value, keys of an object are unique,
// nesting and the number of keys are bounded. For .cpp files only: it includes the JSON library.
// Parsing is compiled once, in strict_json.cpp: it would take half the compile time of each file
// that uses JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/io/json_limits.h"

namespace trireme {

// JsonType: nlohmann::json or nlohmann::ordered_json (keeps the order of keys; lookup is linear in
// their number). Throws InputError; `what` is the prefix of messages: "shard.safetensors: header".
// Takes O(n log n) for any n bytes.
template <class JsonType>
JsonType parse_strict_json(std::string_view json_text, const std::string& what,
                           const JsonLimits& limits = {});

// Parses as the library does, for trusted text and for lines of data: the last of equal keys wins,
// depth is not limited. Returns a value with is_discarded() if the text is not JSON.
template <class JsonType>
JsonType parse_json_text(std::string_view json_text);

// Returns whether a text would be valid JSON but for \u escapes of lone surrogates, which are no
// characters.
bool has_lone_surrogate(std::string_view json_text);

// Returns a non-negative integer that fits int64_t; throws InputError naming `what` for anything
// else.
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
