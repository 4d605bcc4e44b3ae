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
  kRead,
  kIgnored,      // accepted with any value, without effect
  kUnavailable,  // not supported by this server: 501 unless its value is in `trivial`
  kRefused,      // does not belong to this endpoint: 400 unless its value is in `trivial`
};

struct Field {
  std::string name;
  FieldKind kind = FieldKind::kOther;
  std::string default_json;  // empty: none
  std::string help;
  FieldStatus status = FieldStatus::kRead;
  bool is_required = false;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  // Upper and lower bound of the bytes of a string, or of the entries of an array or object.
  size_t max_size = std::numeric_limits<size_t>::max();
  size_t min_size = 0;
  std::vector<std::string> words = {};    // allowed strings; empty: any
  std::string shape = {};                 // JSON Schema, for kOther, kObject and kArray
  std::vector<std::string> trivial = {};  // JSON of values that count as absent
  std::string alias_of = {};              // name of the field's own row; empty: not an alias

  Field& required();
  Field& range(double min_value, double max_value);
  Field& at_least(double bound);
  Field& at_most(double bound);
  Field& entries(size_t min_entries, size_t max_entries);
  Field& one_of(std::vector<std::string> choices);
};

}  // namespace trireme
