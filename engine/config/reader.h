// Strict reading of JSON configurations, independent of what is configured.
//
// A Schema (schema.h) lists every key. Reading reports all problems at once: an unknown key names
// the nearest known one, a key and its alias with different values are an error, foreign keys
// (DeepSpeed's, Megatron's) are accepted, explained or refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/json.h"

namespace trireme {

class Schema;

// Problems and remarks gathered while reading; each entry starts with a JSON path.
class ConfigReport {
 public:
  void error(const std::string& path, const std::string& message);
  void note(const std::string& path, const std::string& message);
  bool ok() const { return errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // Throws InputError: "what: path: problem", or "what: N problems" and one a line under it.
  void throw_if_errors(const std::string& what) const;

 private:
  std::vector<std::string> errors_;
  std::vector<std::string> notes_;
};

// What a document says for every key of a schema, under canonical paths. A key that is not given,
// or given wrongly (already reported), has its default, or zero/empty without one, so that the
// checks that follow can go on; they ask valid() first where a default would mislead.
class ConfigValues {
 public:
  bool given(const std::string& path) const;    // present in the document, not null
  bool valid(const std::string& path) const;    // given and right, or a default stands in
  bool is_auto(const std::string& path) const;  // "auto", given or by default
  // "auto" stands where it means the default; given() is false then.
  bool left_to_default(const std::string& path) const;
  // The path as the user wrote it (an alias, under the document's prefix), for messages.
  std::string spelled(const std::string& path) const;
  bool flag(const std::string& path) const;
  int64_t integer(const std::string& path) const;
  double number(const std::string& path) const;
  std::string word(const std::string& path) const;  // strings and enumerations; "" for null
  const Json& raw(const std::string& path) const;

 private:
  friend ConfigValues read_config(const Schema&, const Json&, const std::string&, ConfigReport&);
  struct Entry;
  struct Table;
  const Entry& entry(const std::string& path) const;
  std::shared_ptr<const Table> table_;
};

// Checks `document` against the schema. `prefix` ("model") stands before each path in the report.
ConfigValues read_config(const Schema& schema, const Json& document, const std::string& prefix,
                         ConfigReport& report);

}  // namespace trireme
