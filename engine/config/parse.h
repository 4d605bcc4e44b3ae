// JSON text to a document, strictly and safely.
//
// RFC 8259 and nothing more: no comments, no trailing commas, no NaN. A key twice in one object is
// an error. Limits hold before memory is taken: 16 MiB of text, 64 levels.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/json.h"

namespace trireme {

inline constexpr int64_t kMaxConfigBytes = 16 << 20;
inline constexpr int kMaxConfigDepth = 64;

// `name` stands in messages: "name:line:column: ...". Throws InputError.
Json parse_json(const std::string& json_text, const std::string& name);
Json parse_json_file(const std::string& path);

}  // namespace trireme
