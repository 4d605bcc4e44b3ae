#include "engine/config/schema.h"

#include <algorithm>
#include <cstdlib>

#include "engine/config/nearest_word.h"
#include "engine/core/error.h"

namespace trireme {

Key& Key::required() {
  is_required = true;
  return *this;
}
Key& Key::or_auto() {
  allows_auto = true;
  return *this;
}
Key& Key::auto_as_default() {
  auto_means_default = true;
  return *this;
}
Key& Key::or_null() {
  allows_null = true;
  return *this;
}
Key& Key::off_trajectory() {
  is_trajectory = false;
  return *this;
}
Key& Key::at_least(double bound) {
  min = bound;
  return *this;
}
Key& Key::at_most(double bound) {
  max = bound;
  return *this;
}
Key& Key::above(double bound) {
  min = bound;
  above_min = true;
  return *this;
}
Key& Key::below(double bound) {
  max = bound;
  below_max = true;
  return *this;
}
Key& Key::alias(std::vector<std::string> paths) {
  aliases = std::move(paths);
  return *this;
}
Key& Key::synonym(std::string foreign, std::string value) {
  synonyms.emplace_back(std::move(foreign), std::move(value));
  return *this;
}
Key& Key::not_yet(std::vector<std::string> words) {
  unavailable_values = std::move(words);
  return *this;
}

Key& Schema::add(std::string path, KeyKind kind, std::string default_json, std::string help) {
  Key key;
  key.path = std::move(path);
  key.kind = kind;
  key.default_json = std::move(default_json);
  key.help = std::move(help);
  keys_.push_back(std::move(key));
  return keys_.back();
}

Key& Schema::boolean(std::string path, bool preset, std::string help) {
  return add(std::move(path), KeyKind::kBool, text(preset), std::move(help));
}
Key& Schema::boolean_or_auto(std::string path, std::string help) {
  return add(std::move(path), KeyKind::kBool, "\"auto\"", std::move(help)).or_auto();
}
Key& Schema::integer(std::string path, std::string default_json, std::string help) {
  return add(std::move(path), KeyKind::kInt, std::move(default_json), std::move(help));
}
Key& Schema::number(std::string path, std::string default_json, std::string help) {
  return add(std::move(path), KeyKind::kFloat, std::move(default_json), std::move(help));
}
Key& Schema::string(std::string path, std::string default_json, std::string help) {
  return add(std::move(path), KeyKind::kString, std::move(default_json), std::move(help));
}
Key& Schema::choice(std::string path, const std::string& preset, std::vector<std::string> values,
                    std::string help) {
  const std::string default_json = preset.empty() ? "" : concat("\"", preset, "\"");
  Key& key = add(std::move(path), KeyKind::kEnum, default_json, std::move(help));
  key.values = std::move(values);
  return key;
}
Key& Schema::any(std::string path, std::string default_json, std::string shape, std::string help) {
  Key& key = add(std::move(path), KeyKind::kAny, std::move(default_json), std::move(help));
  key.shape = std::move(shape);
  return key;
}
Key& Schema::row(Key key) {
  keys_.push_back(std::move(key));
  return keys_.back();
}
Key& Schema::ignored(std::string path) {
  Key& key = add(std::move(path), KeyKind::kAny, "", "says nothing about what is computed");
  key.status = KeyStatus::kIgnored;
  return key;
}
Key& Schema::no_effect(std::string path, std::string reason) {
  Key& key = add(std::move(path), KeyKind::kAny, "", std::move(reason));
  key.status = KeyStatus::kNoEffect;
  return key;
}
Key& Schema::refused(std::string path, std::vector<std::string> trivial, std::string reason) {
  Key& key = add(std::move(path), KeyKind::kAny, "", std::move(reason));
  key.status = KeyStatus::kRefused;
  key.trivial = std::move(trivial);
  return key;
}
Key& Schema::unavailable(std::string path, std::vector<std::string> trivial, std::string help) {
  Key& key = add(std::move(path), KeyKind::kAny, "", std::move(help));
  key.status = KeyStatus::kUnavailable;
  key.trivial = std::move(trivial);
  return key;
}

void Schema::section(std::string path, std::string help) {
  section_help_[std::move(path)] = std::move(help);
}

void Schema::check_row(const Key& key) const {
  TRIREME_CHECK(!key.help.empty(), key.path, " has no help");
  TRIREME_CHECK(key.kind != KeyKind::kEnum || !key.values.empty(), key.path, " has no values");
  TRIREME_CHECK(!key.is_required || key.default_json.empty(), key.path,
                " is required and has a default");
  for (const auto& [foreign, value] : key.synonyms)
    TRIREME_CHECK(std::count(key.values.begin(), key.values.end(), value) == 1, key.path, ": ",
                  foreign, " stands for ", value, ", which is not a value");
}

void Schema::finish() {
  for (size_t i = 0; i < keys_.size(); ++i) {
    const Key& key = keys_[i];
    check_row(key);
    TRIREME_CHECK(by_path_.emplace(key.path, i).second, key.path, " is listed twice");
    std::vector<std::string> spellings = key.aliases;
    spellings.push_back(key.path);
    for (const std::string& spelling : spellings) {
      TRIREME_CHECK(by_any_.emplace(spelling, i).second, spelling, " names two keys");
      for (std::string at = spelling; !at.empty(); at = parent_path(at))
        names_in_[parent_path(at)].insert(leaf_name(at));
    }
  }
  for (const auto& [path, index] : by_any_)
    TRIREME_CHECK(!is_section(path), path, " is both a key and a section");
}

const Key* Schema::find(const std::string& path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : &keys_[found->second];
}

const Key* Schema::find_any(const std::string& path) const {
  const auto found = by_any_.find(path);
  return found == by_any_.end() ? nullptr : &keys_[found->second];
}

bool Schema::is_section(const std::string& path) const { return names_in_.contains(path); }

std::vector<std::string> Schema::children(const std::string& section) const {
  std::vector<std::string> names;
  for (const Key& key : keys_) {
    if (key.status != KeyStatus::kImplemented) continue;
    for (std::string at = key.path; !at.empty(); at = parent_path(at))
      if (parent_path(at) == section && std::count(names.begin(), names.end(), leaf_name(at)) == 0)
        names.push_back(leaf_name(at));
  }
  return names;
}

namespace {

struct Candidate {
  int distance;
  bool foreign;  // an alias or a key without effect: named after our own keys
  std::string name;
  auto operator<=>(const Candidate&) const = default;
};

std::vector<std::string> best_of(std::vector<Candidate> candidates, int limit) {
  std::sort(candidates.begin(), candidates.end());
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) {
    if (candidate.distance > limit || candidate.distance > candidates.front().distance) break;
    if (names.size() < 3) names.push_back(candidate.name);
  }
  return names;
}

}  // namespace

std::vector<std::string> Schema::nearest(const std::string& path) const {
  const std::string section = parent_path(path), leaf = leaf_name(path);
  const int tolerated = std::max(1, static_cast<int>(leaf.size()) / 3);
  std::vector<Candidate> siblings, elsewhere;
  const auto consider = [&](std::vector<Candidate>& list, const std::string& name, bool foreign,
                            const std::string& suggestion) {
    const auto difference = std::ssize(leaf) - std::ssize(name);
    if (std::abs(difference) > tolerated) return;  // no need to compare
    list.push_back({edit_distance(leaf, name), foreign, suggestion});
  };
  if (const auto names = names_in_.find(section); names != names_in_.end())
    for (const std::string& name : names->second) {
      const Key* key = find(join_path(section, name));
      consider(siblings, name, key == nullptr || key->status != KeyStatus::kImplemented, name);
    }
  for (const Key& key : keys_)
    if (key.status == KeyStatus::kImplemented && parent_path(key.path) != section)
      consider(elsewhere, leaf_name(key.path), false, key.path);

  std::vector<std::string> found = best_of(siblings, 1);
  if (found.empty()) found = best_of(elsewhere, 0);
  if (found.empty()) found = best_of(siblings, tolerated);
  if (found.empty() && leaf.size() > 3) found = best_of(elsewhere, 1);
  return found;
}

std::string parent_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string leaf_name(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

std::string join_path(const std::string& section, const std::string& name) {
  return section.empty() ? name : concat(section, ".", name);
}

}  // namespace trireme
