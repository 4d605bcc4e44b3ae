#include "engine/config/reader.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/config/parse.h"
#include "engine/config/schema.h"
#include "engine/core/error.h"

namespace trireme {

void ConfigReport::error(const std::string& path, const std::string& message) {
  errors_.push_back(concat(path, ": ", message));
}

void ConfigReport::note(const std::string& path, const std::string& message) {
  notes_.push_back(concat(path, ": ", message));
}

void ConfigReport::throw_if_errors(const std::string& what) const {
  if (ok()) return;
  if (errors_.size() == 1) fail_input(what, ": ", errors_.front());
  std::string lines = concat(what, ": ", errors_.size(), " problems");
  for (const std::string& error : errors_) lines += concat("\n  ", error);
  throw InputError(lines);
}

std::string listed_names(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += concat(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  return out;
}

struct ConfigValues::Entry {
  Json value;
  std::string spelled;
  bool given = false;
  bool valid = false;
  bool is_auto_default = false;
};

struct ConfigValues::Table {
  std::map<std::string, Entry> entries;
};

const ConfigValues::Entry& ConfigValues::entry(const std::string& path) const {
  const auto found = table_->entries.find(path);
  TRIREME_CHECK(found != table_->entries.end(), "no key ", path, " in the schema");
  return found->second;
}

bool ConfigValues::given(const std::string& path) const {
  return entry(path).given && !entry(path).value.is_null();
}
bool ConfigValues::valid(const std::string& path) const { return entry(path).valid; }
bool ConfigValues::is_auto(const std::string& path) const { return entry(path).value == "auto"; }
bool ConfigValues::is_auto_default(const std::string& path) const {
  return entry(path).is_auto_default;
}
std::string ConfigValues::spelled(const std::string& path) const { return entry(path).spelled; }
const Json& ConfigValues::raw(const std::string& path) const { return entry(path).value; }

bool ConfigValues::flag(const std::string& path) const {
  const Json& value = entry(path).value;
  return value.is_boolean() && value.get<bool>();
}

int64_t ConfigValues::integer(const std::string& path) const {
  const Json& value = entry(path).value;
  return value.is_number() ? value.get<int64_t>() : 0;
}

double ConfigValues::number(const std::string& path) const {
  const Json& value = entry(path).value;
  return value.is_number() ? value.get<double>() : 0.0;
}

std::string ConfigValues::word(const std::string& path) const {
  const Json& value = entry(path).value;
  return value.is_string() ? value.get<std::string>() : "";
}

namespace {

std::string listed(const std::vector<std::string>& words, const std::string& separator) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i == 0 ? "" : separator) + words[i];
  return out;
}

// Path as shown in messages; names from a hostile file are quoted so that a message stays one line.
std::string safe_path(const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string("._-").find(c) != std::string::npos;
  });
  return plain && !path.empty() ? path : shown(Json(path));
}

std::string lower(std::string word) {
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

// Accepts an integer, or a float with an integral value that a double represents exactly.
bool as_integer(const Json& value, int64_t& out) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return false;
  if (value.is_number_integer()) {
    out = value.get<int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  if (std::abs(number) > kExact || number != std::trunc(number)) return false;
  out = static_cast<int64_t>(number);
  return true;
}

std::string range_problem(const Key& key, double value) {
  const bool low = key.above_min ? value <= key.min : value < key.min;
  const bool high = key.below_max ? value >= key.max : value > key.max;
  if (!low && !high) return "";
  const std::string from = concat(key.above_min ? "above " : "at least ", key.min);
  const std::string to = concat(key.below_max ? "below " : "at most ", key.max);
  constexpr double kTechnical = 1e6;  // a bound that only keeps arithmetic exact is not
                                      // useful advice
  if (std::isinf(key.max) || (low && key.max > kTechnical)) return "must be " + from;
  if (std::isinf(key.min)) return "must be " + to;
  return concat("must be ", from, " and ", to);
}

// Steps compute with float32: a nonzero number that becomes 0, infinity or a bound in float32 is
// not what the document requests.
std::string float32_problem(const Key& key, double value) {
  using Float = std::numeric_limits<float>;
  if (std::abs(value) > Float::max()) return "must be at most 3.4e+38 in size, the largest float32";
  if (value != 0 && std::abs(value) < Float::min())
    return "must be 0 or at least 1.2e-38 in size, the smallest float32";
  const auto single = static_cast<float>(value);
  if (key.below_max && value < key.max && static_cast<double>(single) >= key.max)
    return concat("must be below ", key.max, " in float32, too");
  return "";
}

// Problem with an enumeration's value; "" if valid. Replaces a valid value by the spelling of the
// table.
std::string check_enum(const Key& key, Json& value) {
  const std::string choices = listed(key.values, ", ");
  const std::string word = value.is_string() ? lower(value.get<std::string>()) : "";
  for (const std::string& known : key.values)
    if (value.is_string() && lower(known) == word) {
      value = known;
      return "";
    }
  for (const auto& [foreign, known] : key.synonyms)
    if (lower(foreign) == word) {
      value = known;
      return "";
    }
  for (const std::string& later : key.unavailable_values)
    if (lower(later) == word)
      return concat(shown(value), " is not available in this version; use ", choices);
  const char* rule = key.values.size() == 1 ? "must be " : "must be one of ";
  return concat(rule, choices, "; got ", shown(value));
}

// Problem with the value of an implemented key; "" if valid. Normalizes the value: integers as
// integers, enumerations as spelled in the table.
std::string check_value(const Key& key, Json& value) {
  if (key.allows_auto && value == "auto") return "";
  if (key.allows_null && value.is_null()) return "";
  const bool auto_too = key.allows_auto || key.auto_means_default;
  const std::string got = concat(auto_too ? " or \"auto\"" : "", ", got ", shown(value));
  std::string problem;
  int64_t integer = 0;
  switch (key.kind) {
    case KeyKind::kBool: return value.is_boolean() ? "" : "must be true or false" + got;
    case KeyKind::kInt:
      if (!as_integer(value, integer)) return "must be an integer" + got;
      value = integer;
      problem = range_problem(key, static_cast<double>(integer));
      return problem.empty() ? "" : problem + got;
    case KeyKind::kFloat:
      if (!value.is_number()) return "must be a number" + got;
      problem = range_problem(key, value.get<double>());
      if (problem.empty()) problem = float32_problem(key, value.get<double>());
      return problem.empty() ? "" : problem + got;
    case KeyKind::kString: return value.is_string() ? "" : "must be a string" + got;
    case KeyKind::kEnum: return check_enum(key, value);
    case KeyKind::kAny: return value.is_null() ? "must not be null" : "";
  }
  TRIREME_UNREACHABLE(key.path);
}

bool mentions_switch(const Json& section) {
  return section.is_object() &&
         (section.contains("enabled") || std::ranges::any_of(section, mentions_switch));
}

// Whether a section requests nothing: it is disabled, or every part of it that has an "enabled" key
// is.
bool switched_off(const Json& section) {
  if (!section.is_object()) return false;
  const Json own = section.value("enabled", Json());
  if (own == false || own == "auto") return true;
  bool any = false;
  for (const Json& part : section) {
    if (!mentions_switch(part)) continue;
    if (!switched_off(part)) return false;
    any = true;
  }
  return any;
}

// Whether the value of a refused or unavailable key requests nothing: null, equal in meaning to one
// of the row's values (1 and 1.0 alike), or a section that is switched off.
bool is_trivial(const Key& key, const Json& value) {
  if (value.is_null()) return true;
  for (const std::string& known : key.trivial)
    if (parse_json(known, key.path) == value) return true;
  if (!value.is_object()) return false;
  return value.empty() || value.value("device", Json()) == "none" || switched_off(value);
}

class Reader {
 public:
  Reader(const Schema& schema, std::string prefix, ConfigReport& report)
      : schema_(schema), prefix_(std::move(prefix)), report_(report) {}

  struct Found {
    Json value;
    std::string spelled;
    bool valid;
  };
  std::map<std::string, Found> found;  // by canonical path
  std::set<std::string> meant;         // canonical paths suggested for an unknown key
  std::set<std::string> left_out;      // canonical paths whose "auto" means the default

  void walk(const Json& object, const std::string& section) {
    for (const auto& [name, value] : object.items()) {
      const std::string path = join_path(section, name);
      if (full()) return;
      if (name.find('.') != std::string::npos) {
        fail(path, "a dot in a key; nest objects instead");
      } else if (const Key* key = schema_.find_any(path)) {
        record(*key, path, value);
      } else if (schema_.is_section(path)) {
        enter(path, value);
      } else {
        unknown(path);
      }
    }
  }

  // One note for each reason, whatever the number of keys.
  void report_no_effect() const {
    for (const auto& [reason, paths] : without_effect_)
      report_.note(listed(paths, ", "),
                   concat(paths.size() == 1 ? "has" : "have", " no effect here: ", reason));
  }

  void fail(const std::string& path, const std::string& message) {
    if (full()) return;
    report_.error(safe_path(join_path(prefix_, path)), message);
  }

 private:
  // Bounds the work for a hostile file with a million unknown keys, each of which costs a search
  // for its neighbours.
  bool full() const { return report_.errors().size() >= 100; }

  void enter(const std::string& path, const Json& value) {
    if (value.is_object()) return walk(value, path);
    if (value.is_null()) return;
    // Megatron's `bf16: true` for a section whose main key is a switch.
    if (const Key* key = schema_.find_any(path + ".enabled"); key != nullptr && value.is_boolean())
      return record(*key, path, value);
    fail(path, concat("must be an object, got ", shown(value)));
  }

  void record(const Key& key, const std::string& path, Json value) {
    const auto earlier = found.find(key.path);
    const bool again = earlier != found.end();
    std::string problem;
    if (key.auto_means_default && value == "auto") {
      left_out.insert(key.path);
      return;
    }
    if (key.status == KeyStatus::kImplemented) {
      problem = check_value(key, value);
    } else if (key.status == KeyStatus::kNoEffect) {
      if (!(value == false) && !is_trivial(key, value)) note_no_effect(path, key.help);
    } else if (key.status != KeyStatus::kIgnored && !is_trivial(key, value)) {
      problem = foreign_problem(key, value);
    }
    if (!problem.empty()) fail(path, problem);
    // Programs write a value under both its old and its new name: equal values do not conflict.
    if (again && !(value == earlier->second.value) && !value.is_null() &&
        !earlier->second.value.is_null() && problem.empty() && earlier->second.valid) {
      const std::string other = join_path(prefix_, earlier->second.spelled);
      return fail(path, concat("means the same as ", other, ", which is ",
                               shown(earlier->second.value), "; keep one"));
    }
    if (again && (value.is_null() || !problem.empty())) return;
    found[key.path] = {std::move(value), path, problem.empty()};
  }

  void note_no_effect(const std::string& path, const std::string& reason) {
    auto found_reason =
        std::ranges::find(without_effect_, reason, &decltype(without_effect_)::value_type::first);
    if (found_reason == without_effect_.end())
      found_reason = without_effect_.insert(found_reason, {reason, {}});
    found_reason->second.push_back(join_path(prefix_, path));
  }

  static std::string foreign_problem(const Key& key, const Json& value) {
    if (key.status == KeyStatus::kRefused) return concat(shown(value), " is refused: ", key.help);
    const std::string only =
        key.trivial.empty() ? "" : "; only " + listed(key.trivial, " or ") + " is";
    return concat(shown(value), " is not available in this version (", key.help, ")", only);
  }

  void unknown(const std::string& path) {
    std::vector<std::string> names = schema_.nearest(path);
    const std::string section = parent_path(path);
    if (names.empty()) {
      std::string where = section.empty() ? prefix_ : join_path(prefix_, section);
      if (where.empty()) where = "the top level";
      return fail(path,
                  concat("unknown key; ", where, " has ", listed(schema_.children(section), ", ")));
    }
    for (std::string& name : names) {
      const bool elsewhere = name.find('.') != std::string::npos;
      if (const Key* key = schema_.find_any(elsewhere ? name : join_path(section, name)))
        meant.insert(key->path);
      name = concat("\"", elsewhere ? join_path(prefix_, name) : name, "\"");
    }
    fail(path, concat("unknown key; did you mean ", listed(names, " or "), "?"));
  }

  const Schema& schema_;
  std::string prefix_;
  ConfigReport& report_;
  // Reason, and the keys that have no effect because of it, in document order.
  std::vector<std::pair<std::string, std::vector<std::string>>> without_effect_;
};

}  // namespace

ConfigValues read_config(const Schema& schema, const Json& document, const std::string& prefix,
                         ConfigReport& report) {
  Reader reader(schema, prefix, report);
  if (document.is_object()) {
    reader.walk(document, "");
    reader.report_no_effect();
  } else {
    report.error(prefix.empty() ? "(top level)" : prefix,
                 concat("must be an object, got ", shown(document)));
  }
  auto table = std::make_shared<ConfigValues::Table>();
  for (const Key& key : schema.keys()) {
    ConfigValues::Entry& entry = table->entries[key.path];
    entry.spelled = join_path(prefix, key.path);
    entry.valid = true;
    entry.is_auto_default = reader.left_out.contains(key.path);
    if (const auto it = reader.found.find(key.path); it != reader.found.end()) {
      entry.given = true;
      entry.valid = it->second.valid;
      entry.spelled = join_path(prefix, it->second.spelled);
      if (entry.valid) entry.value = it->second.value;
    } else if (key.is_required) {
      entry.valid = false;
      // A misspelled required key is reported once, not twice.
      if (document.is_object() && !reader.meant.contains(key.path))
        reader.fail(key.path, "is required: " + key.help);
    }
    const bool missing = !entry.given || !entry.valid;
    if (missing && !key.default_json.empty()) entry.value = parse_json(key.default_json, key.path);
  }
  ConfigValues values;
  values.table_ = std::move(table);
  return values;
}

}  // namespace trireme
