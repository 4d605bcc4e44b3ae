// Strict JSON parser with limits for untrusted text.
//
// RFC 8259 and nothing more: no comments, no trailing commas, no NaN. A repeated key in an object
// is an error. Limits are checked before memory is allocated: 16 MiB of text, 64 levels.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/json.h"

namespace trireme {

inline constexpr int64_t kMaxConfigBytes = 16 << 20;
inline constexpr int kMaxConfigDepth = 64;

// `name` is the prefix of messages: "name:line:column: ...". Throws InputError.
Json parse_json(const std::string& json_text, const std::string& name);
Json parse_json_file(const std::string& path);
// The same for a file that Python's json.dump may have written, such as a published config.json:
// its NaN, Infinity and -Infinity become strings of these names, which no numeric key accepts.
Json parse_published_json_file(const std::string& path);
// JSON text with those three, outside of strings, quoted as strings.
std::string without_python_numbers(const std::string& json_text);

}  // namespace trireme
