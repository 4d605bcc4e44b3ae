// Schema of a configuration: one row per key, from which the reader, the JSON Schema, the reference
// page and the overrides are derived.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

enum class KeyKind {
  kBool,
  kInt,    // also a float with an integral value, at most 2^53 in size: 5e8
  kFloat,  // also an integer
  kString,
  kEnum,  // a word of `values` or `synonyms`, in any case
  kAny,   // checked by the code that uses it; may be an object with keys of its own
};

// A value is trivial if it requests nothing: one of Key::trivial, null, {}, an object with
// "device": "none", or a section that is switched off by its "enabled" keys.
enum class KeyStatus {
  kImplemented,
  kIgnored,      // does not affect the computation; accepted silently
  kNoEffect,     // accepted, with a note that gives the reason unless the value is false or trivial
  kRefused,      // an error with the reason, unless the value is trivial
  kUnavailable,  // an error "not available in this version", unless the value is trivial
};

struct Key {
  std::string path;  // "optimizer.params.lr"
  KeyKind kind = KeyKind::kAny;
  std::string default_json;  // the default as JSON text; empty: none
  std::string help;          // meaning; for kNoEffect and kRefused, the reason
  std::string shape;         // description of a kAny value, for the reference
  KeyStatus status = KeyStatus::kImplemented;
  bool is_required = false;
  bool allows_auto = false;
  bool auto_means_default = false;  // "auto" is equivalent to omitting the key
  bool allows_null = false;
  bool is_trajectory = true;  // whether the results of training depend on it
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                                     // min itself is excluded
  bool below_max = false;                                     // max itself is excluded
  std::vector<std::string> values;                            // of an enumeration
  std::vector<std::pair<std::string, std::string>> synonyms;  // foreign word, value
  std::vector<std::string> unavailable_values;  // known words without an implementation yet
  std::vector<std::string> aliases;             // paths with the same meaning and unit
  std::vector<std::string> trivial;             // JSON texts of values that request nothing

  // Setters of the members above. auto_as_default() sets auto_means_default, not_yet()
  // unavailable_values. alias() and not_yet() replace the list, synonym() appends one pair.
  Key& required();
  Key& or_auto();
  Key& auto_as_default();
  Key& or_null();
  Key& off_trajectory();
  Key& at_least(double bound);
  Key& at_most(double bound);
  Key& above(double bound);
  Key& below(double bound);
  Key& alias(std::vector<std::string> paths);
  Key& synonym(std::string foreign, std::string value);
  Key& not_yet(std::vector<std::string> words);
};

class Schema {
 public:
  explicit Schema(std::string title) : title_(std::move(title)) {}

  // Rows. An empty default means none. The reference returned is valid until the next row is added.
  Key& boolean(std::string path, bool preset, std::string help);
  Key& boolean_or_auto(std::string path, std::string help);  // auto by default
  Key& integer(std::string path, std::string default_json, std::string help);
  Key& number(std::string path, std::string default_json, std::string help);
  Key& string(std::string path, std::string default_json, std::string help);
  Key& choice(std::string path, const std::string& preset, std::vector<std::string> values,
              std::string help);
  Key& any(std::string path, std::string default_json, std::string shape, std::string help);
  Key& row(Key key);  // a ready row, such as one of another schema
  Key& ignored(std::string path);
  Key& no_effect(std::string path, std::string reason);
  Key& refused(std::string path, std::vector<std::string> trivial, std::string reason);
  Key& unavailable(std::string path, std::vector<std::string> trivial, std::string help);
  void section(std::string path, std::string help);  // text above its table in the reference
  // Builds the lookup tables and checks the rows (CheckFailed): help present, no duplicate path or
  // alias, no path that is both a key and a section, no default of a required key, values for every
  // enumeration, and every synonym for one of them. Call once, after the last row.
  void finish();

  const std::string& title() const { return title_; }
  const std::vector<Key>& keys() const { return keys_; }
  const std::map<std::string, std::string>& section_help() const { return section_help_; }
  // nullptr if there is none:
  const Key* find(const std::string& path) const;      // by canonical path
  const Key* find_any(const std::string& path) const;  // by canonical path or alias
  bool is_section(const std::string& path) const;      // an object that holds keys or aliases
  // Suggestions for an unknown path, at most three, all equally near: leaf names in its section, or
  // whole paths of keys elsewhere. Empty if nothing is near.
  std::vector<std::string> nearest(const std::string& path) const;
  // Names of the implemented keys and of the sections in a section; no aliases.
  std::vector<std::string> children(const std::string& section) const;

 private:
  Key& add(std::string path, KeyKind kind, std::string default_json, std::string help);
  void check_row(const Key& key) const;
  std::string title_;
  std::vector<Key> keys_;
  std::map<std::string, std::string> section_help_;
  std::map<std::string, size_t> by_path_;                  // canonical paths
  std::map<std::string, size_t> by_any_;                   // and aliases
  std::map<std::string, std::set<std::string>> names_in_;  // section: names of all kinds
};

std::string parent_path(const std::string& path);  // "" for a top-level name
std::string leaf_name(const std::string& path);
std::string join_path(const std::string& section, const std::string& name);

}  // namespace trireme
