// Request field: one row that describes the field completely. The parser, range checks, error
// messages and /openapi.json are derived from it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace trireme {

enum class FieldKind {
  kBoolean,
  kInteger,  // also a number with an integral value, such as 1.0
  kNumber,
  kString,
  kObject,
  kArray,
  kOther,  // several kinds; `shape` describes them, the field's reader checks
};

enum class FieldStatus {
  kRead,         // checked and used
  kIgnored,      // accepted with any value, without effect
  kUnavailable,  // not supported by this server: 501 unless its value is in `trivial`
  kRefused,      // does not belong to this endpoint: 400 unless its value is in `trivial`
};

struct Field {
  std::string name;
  FieldKind kind = FieldKind::kOther;
  std::string default_json;  // default value as JSON, for documents only; empty: none
  std::string help;          // for documents; of kUnavailable and kRefused the reason or way out
  FieldStatus status = FieldStatus::kRead;
  bool is_required = false;
  // Bounds of a number, inclusive.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  // Bounds, inclusive, of the bytes of a string, or of the entries of an array or object.
  size_t max_size = std::numeric_limits<size_t>::max();
  size_t min_size = 0;
  std::vector<std::string> words = {};    // allowed strings; empty: any
  std::string shape = {};                 // JSON Schema, for kOther, kObject and kArray
  std::vector<std::string> trivial = {};  // JSON of values that count as absent
  std::string alias_of = {};              // name of the field's own row; empty: not an alias

  // These set the members above and return this row. size_range(): min_size and max_size; one_of():
  // words.
  Field& required();
  Field& range(double min_value, double max_value);
  Field& at_least(double bound);
  Field& at_most(double bound);
  Field& size_range(size_t least, size_t most);
  Field& one_of(std::vector<std::string> choices);
};

}  // namespace trireme
