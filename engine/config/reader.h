// Strict reader of JSON configurations, driven by a schema.
//
// A Schema (schema.h) lists every key. Reading reports all problems at once, up to 100. An unknown
// key is reported with the nearest known ones or, if none is near, all keys of its section. A key
// and its alias with different values are an error. Foreign keys (of DeepSpeed, Megatron) are
// accepted, accepted with a note, or refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/json.h"

namespace trireme {

class Schema;

// Errors and notes collected while reading; each entry is "PATH: MESSAGE" with a dotted path. A
// note may name several paths.
class ConfigReport {
 public:
  void error(const std::string& path, const std::string& message);
  void note(const std::string& path, const std::string& message);
  bool ok() const { return errors_.empty(); }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // Throws InputError if there are errors: "what: path: problem", or "what: N problems" followed by
  // one line for each.
  void throw_if_errors(const std::string& what) const;

 private:
  std::vector<std::string> errors_;
  std::vector<std::string> notes_;
};

// Alternatives in a message: "a, b or c".
std::string listed_names(const std::vector<std::string>& names);

// Values of a document for every key of a schema, by canonical path (CheckFailed for a path that
// the schema lacks). A key that is absent or invalid (already reported) has its default, or
// zero/empty without one, so that later checks can run; they call valid() first if a default would
// mislead.
class ConfigValues {
 public:
  // Present in the document and not null; for a key without a default, also valid.
  bool given(const std::string& path) const;
  bool valid(const std::string& path) const;    // given and valid, or absent and not required
  bool is_auto(const std::string& path) const;  // "auto", given or by default
  // Whether the document has "auto" for a key whose "auto" means its default; given() is then false
  // as for an absent key.
  bool is_auto_default(const std::string& path) const;
  // Path as the document spells it (perhaps an alias), after the prefix, for messages.
  std::string spelled(const std::string& path) const;
  // Value of a key; false, 0 or "" if it is of another type, such as "auto" or null.
  bool flag(const std::string& path) const;
  int64_t integer(const std::string& path) const;
  double number(const std::string& path) const;
  std::string word(const std::string& path) const;  // string or enumeration
  const Json& raw(const std::string& path) const;   // of any type; null if there is no value

 private:
  friend ConfigValues read_config(const Schema&, const Json&, const std::string&, ConfigReport&);
  struct Entry;
  struct Table;
  const Entry& entry(const std::string& path) const;
  std::shared_ptr<const Table> table_;
};

// Checks `document` against the schema and adds errors and notes to the report. prefix: precedes
// each path in the report ("model"); may be empty.
ConfigValues read_config(const Schema& schema, const Json& document, const std::string& prefix,
                         ConfigReport& report);

}  // namespace trireme
