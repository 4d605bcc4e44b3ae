// Strict reader of JSON configurations, driven by a schema.
//
// A Schema (schema.h) lists every key. Reading reports all problems at once: an unknown key is
// reported with the nearest known one, a key and its alias with different values are an error,
// foreign keys (DeepSpeed's, Megatron's) are accepted, explained or refused.
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
  // Throws InputError: "what: path: problem", or "what: N problems" and one per line below.
  void throw_if_errors(const std::string& what) const;

 private:
  std::vector<std::string> errors_;
  std::vector<std::string> notes_;
};

// Values of a document for every key of a schema, under canonical paths. A key that is absent or
// invalid (already reported) has its default, or zero/empty without one, so that later checks can
// run; they call valid() first where a default would mislead.
class ConfigValues {
 public:
  bool given(const std::string& path) const;    // present in the document, not null
  bool valid(const std::string& path) const;    // given and valid, or replaced by a default
  bool is_auto(const std::string& path) const;  // "auto", given or by default
  // Whether "auto" was written and means the default; given() is false then.
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

// Checks `document` against the schema. `prefix` ("model") precedes each path in the report.
ConfigValues read_config(const Schema& schema, const Json& document, const std::string& prefix,
                         ConfigReport& report);

}  // namespace trireme
