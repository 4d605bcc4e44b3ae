// The fields of requests: one row says everything there is to say about a field. Parser, range
// checks, error messages and /openapi.json are all driven by it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace trireme {

enum class FieldKind {
  kBoolean,
  kInteger,  // also a number with an integral value: 1.0
  kNumber,
  kString,
  kObject,
  kArray,
  kOther,  // of several kinds; `shape` says which, the code behind it checks
};

enum class FieldStatus {
  kRead,
  kIgnored,      // accepted in silence: it changes nothing here
  kUnavailable,  // 501 unless its value is one of `trivial`
  kRefused,      // the same with 400: what it asks for is not done for requests
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
  size_t most =
      std::numeric_limits<size_t>::max();  // bytes of a string, entries of an array or object
  size_t least = 0;
  std::vector<std::string> words = {};    // the only strings it may be
  std::string shape = {};                 // JSON Schema of kOther, kObject and kArray
  std::vector<std::string> trivial = {};  // JSON texts of values that are read as absent
  std::string alias_of = {};              // the field that this is another name of; empty: none

  Field& required();
  Field& range(double least_value, double most_value);
  Field& at_least(double bound);
  Field& at_most(double bound);
  Field& entries(size_t fewest, size_t largest);
  Field& one_of(std::vector<std::string> choices);
};

}  // namespace trireme
