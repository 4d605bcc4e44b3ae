// Strict reading of JSON configurations, independent of what is configured.
//
// A Schema lists every key: path, type, default, range, enumeration, help text, aliases. Reading
// reports all problems at once: an unknown key names the nearest known one, a key and its alias
// together are an error, foreign keys (DeepSpeed's, Megatron's) are accepted, explained or refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

using Json = nlohmann::ordered_json;

// Problems and remarks gathered while reading; each entry starts with a JSON path.
class ConfigReport {
 public:
  void error(const std::string& path, const std::string& message);
  void note(const std::string& path, const std::string& message);
  bool ok() const { return errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // Throws InputError with all errors, one a line under "what: N problems".
  void throw_if_errors(const std::string& what) const;

 private:
  std::vector<std::string> errors_;
  std::vector<std::string> notes_;
};

}  // namespace trireme
