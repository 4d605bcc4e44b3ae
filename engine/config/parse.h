// Strict JSON parser with limits for untrusted text.
//
// RFC 8259 without extensions: no comments, no trailing commas, no NaN. A repeated key in an object
// is an error. Limits: 16 MiB of text, checked before parsing, and 64 levels of nesting, checked
// before a deeper value is built.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/json.h"

namespace trireme {

inline constexpr int64_t kMaxConfigBytes = 16 << 20;
inline constexpr int kMaxConfigDepth = 64;

// Throws InputError; messages start with `name`, and for syntax errors "name:line:column: ...".
Json parse_json(const std::string& json_text, const std::string& name);
// parse_json() of a regular file or a pipe, named by its path. InputError also if it cannot be
// read, is empty or is a Git LFS pointer.
Json parse_json_file(const std::string& path);
// parse_json_file() for a file that Python's json.dump may have written, such as a published
// config.json: NaN, Infinity and -Infinity become strings, which no numeric key accepts.
Json parse_published_json_file(const std::string& path);
// JSON text with NaN, Infinity and -Infinity outside of strings put in quotes.
std::string without_python_numbers(const std::string& json_text);

}  // namespace trireme
