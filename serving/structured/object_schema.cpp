#include "serving/structured/object_schema.h"

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <optional>

#include "serving/structured/additional_members.h"
#include "serving/structured/automaton_product.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr size_t kMaxMemberRules = 4000;  // besides two per member
constexpr size_t kMaxListedNames = 1000;

class ObjectBuilder {
 public:
  ObjectBuilder(Subschemas& subschemas, const Schema& s, const std::string& path, int depth)
      : sub_(subschemas),
        json_(subschemas.json()),
        g_(json_.grammar()),
        s_(s),
        path_(path),
        depth_(depth),
        comma_(g_.sequence({g_.literal(","), json_.space()})) {}

  Node build() {
    read_members();
    read_counts();
    return g_.named(
        g_.sequence({g_.literal("{"), json_.space(), members_grammar(), g_.literal("}")}));
  }

 private:
  struct Member {
    std::string name;
    Node node;
    bool required = false;
    std::vector<size_t> needs = {}, needed_by = {};  // by dependentRequired
  };

  // --- members with known names ---

  void read_members() {
    const Schema properties = s_.value("properties", Schema::object());
    if (!properties.is_object()) fail_keyword(path_, "properties", "must be an object");
    const Schema required = s_.value("required", Schema::array());
    const bool is_list = required.is_array() && std::ranges::all_of(required, &Schema::is_string);
    if (!is_list) fail_keyword(path_, "required", "must be an array of strings");
    const Schema patterns = s_.value("patternProperties", Schema::object());
    for (const auto& [pattern, of] : patterns.items()) patterns_.emplace_back(pattern, of);
    is_open_ = s_.contains("additionalProperties")
                   ? s_["additionalProperties"] != false
                   : !s_.contains("properties") && required.empty() && patterns_.empty();
    for (const auto& [name, of] : properties.items()) add_property(name, of);
    // Required names without their own schema have that of additional members.
    for (const Schema& name : required) {
      add_additional(name);
      members_[place_.at(name)].required = true;
    }
    read_dependencies();
    if (!read_listed_names()) read_others();
  }

  void add(const std::string& name, Node value) {
    if (!is_name(name)) value = g_.choice({});
    place_.emplace(name, members_.size());
    members_.push_back(
        {.name = name,
         .node = g_.named(g_.sequence({g_.literal(Schema(name).dump()), json_.space(),
                                       g_.literal(":"), json_.space(), value, json_.space()}))});
  }
  void add_property(const std::string& name, const Schema& of) {
    Schema all = schemas_of_patterns(name);
    const std::string where = concat(path_, "/properties/", name.substr(0, 64));
    if (all.empty()) return add(name, sub_.compile(of, where, depth_ + 1));
    all.insert(all.begin(), of);
    add(name, sub_.compile({{"allOf", all}}, where, depth_ + 1));
  }
  void add_additional(const std::string& name) {
    if (place_.contains(name)) return;
    const Schema all = schemas_of_patterns(name);
    if (all.empty()) return add(name, additional_value());
    add(name, sub_.compile({{"allOf", all}}, path_ + "/patternProperties", depth_ + 1));
  }
  Node additional_value() {
    if (!additional_value_)
      additional_value_ = s_.contains("additionalProperties")
                              ? sub_.compile(s_["additionalProperties"],
                                             path_ + "/additionalProperties", depth_ + 1)
                              : json_.value();
    return *additional_value_;
  }
  bool is_name(const std::string& name) {
    return !s_.contains("propertyNames") ||
           sub_.satisfies(name, s_["propertyNames"], path_ + "/propertyNames");
  }
  // Schemas of the patterns that a name matches.
  Schema schemas_of_patterns(const std::string& name) {
    Schema all = Schema::array();
    for (const auto& [pattern, of] : patterns_)
      if (sub_.satisfies(name, {{"pattern", pattern}}, path_ + "/patternProperties"))
        all.push_back(of);
    return all;
  }
  // True if a name without its own schema is allowed.
  bool may_be_additional(const std::string& name) {
    return is_open_ || !schemas_of_patterns(name).empty();
  }

  // A member that is not allowed requires none; a required member may require others.
  void read_dependencies() {
    const Schema all = s_.value("dependentRequired", Schema::object());
    for (bool is_complete = false; !is_complete;) {
      const size_t known = members_.size();
      for (const auto& [name, needed] : all.items()) {
        if (may_be_additional(name)) add_additional(name);
        if (!place_.contains(name)) continue;
        for (const Schema& other : needed) add_additional(other);
      }
      is_complete = members_.size() == known;
    }
    for (const auto& [name, needed] : all.items()) {
      const auto trigger = place_.find(name);
      if (trigger == place_.end()) continue;
      for (const Schema& other : needed) {
        const size_t to = place_.at(other);
        members_[trigger->second].needs.push_back(to);
        members_[to].needed_by.push_back(trigger->second);
      }
    }
  }

  // Treats additional names from a finite list as known members, which occur at most once. False:
  // there is no list.
  bool read_listed_names() {
    if (!s_.contains("propertyNames")) return false;
    const auto names =
        sub_.list_values(s_["propertyNames"], path_ + "/propertyNames", kMaxListedNames);
    if (!names) return false;
    for (const Schema& name : *names)
      if (name.is_string() && may_be_additional(name)) add_additional(name);
    return true;
  }

  bool have_common_text(const FiniteAutomaton& a, const FiniteAutomaton& b) {
    return std::ranges::any_of(intersection(a, b, g_.budget()), &AutomatonState::final);
  }

  // Members with unlisted names: kinds for names that match exactly one pattern, and for no
  // pattern.
  void read_others() {
    const std::string where = path_ + "/patternProperties";
    g_.budget().note_count(std::ssize(patterns_),
                           concat("schema ", path_, ": \"patternProperties\""));
    std::vector<FiniteAutomaton> matches, no_match;
    for (const auto& [pattern, of] : patterns_) {
      matches.push_back(sub_.pattern_automaton(pattern, where));
      no_match.push_back(complement_of(matches.back(), g_.budget()));
    }
    std::vector<MemberKind> kinds;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      MemberKind& kind = kinds.emplace_back();
      kind.pattern = patterns_[i].first;
      kind.has_pattern = true;
      kind.value = sub_.compile(patterns_[i].second, where, depth_ + 1);
      for (size_t j = 0; j < no_match.size(); ++j)
        if (j != i && have_common_text(matches[i], matches[j]))
          kind.automata.push_back(no_match[j]);
    }
    if (is_open_) kinds.push_back({.automata = no_match, .value = additional_value()});
    if (kinds.empty()) return;
    std::vector<std::string> names;
    for (const Member& member : members_)
      if (is_name(member.name)) names.push_back(member.name);
    others_.emplace(sub_, s_, std::move(names), std::move(kinds), path_, depth_);
  }

  // --- which members are present ---

  void read_counts() {
    min_ = count_of(s_, "minProperties", 0, path_);
    max_ = count_of(s_, "maxProperties", -1, path_);
    const int64_t named = std::ssize(members_);
    if (!others_ && max_ >= named) max_ = -1;
    if (min_ <= std::ranges::count_if(members_, &Member::required)) min_ = 0;
    // Members are counted up to here; at least 1, to know whether a comma is needed.
    max_count_ = std::min(max_ < 0 ? std::max<int64_t>(min_, 1) : max_, named);
  }

  // Members so far, as far as later ones depend on them.
  struct Progress {
    int64_t count = 0;                          // members present
    std::vector<size_t> forced = {}, out = {};  // later members: required, and not allowed
    auto operator<=>(const Progress&) const = default;
  };

  static void add_later(std::vector<size_t>& to, const std::vector<size_t>& more, size_t member) {
    for (const size_t one : more)
      if (one > member) to.push_back(one);
    std::ranges::sort(to);
    const auto [first, last] = std::ranges::unique(to);
    to.erase(first, last);
  }

  // Progress after a member that is present or not; nullopt: it must not, or must, be present.
  std::optional<Progress> after(Progress before, size_t member, bool is_there) const {
    const Member& m = members_[member];
    const bool forced = std::erase(before.forced, member) > 0 || m.required;
    const bool out = std::erase(before.out, member) > 0;
    if (is_there ? out : forced) return {};
    if (!is_there) {
      add_later(before.out, m.needed_by, member);
      return before;
    }
    if (max_ >= 0 && before.count >= max_) return {};
    before.count = std::min(before.count + 1, max_count_);
    add_later(before.forced, m.needs, member);
    return before;
  }

  Node members_grammar() {
    const size_t end = members_.size();
    std::vector<std::map<Progress, Node>> levels(end + 1);
    levels[0].emplace(Progress{}, -1);
    size_t rules = 0;
    for (size_t i = 0; i < end; ++i) {
      for (const auto& [before, node] : levels[i])
        for (const bool is_there : {true, false})
          if (auto next = after(before, i, is_there)) levels[i + 1].emplace(std::move(*next), -1);
      rules += levels[i + 1].size();
      g_.budget().check_time();
      if (rules > kMaxMemberRules + 2 * end)
        fail_keyword(path_, combining_keyword(),
                     concat("is not supported where it makes more than ", kMaxMemberRules,
                            " combinations of properties"));
    }
    if (rules > 2 * end)
      g_.budget().note_count(static_cast<int64_t>(rules),
                             concat("schema ", path_, ": \"", combining_keyword(), "\""));
    for (auto& [progress, node] : levels[end]) node = others_grammar(progress.count);
    for (size_t i = end; i-- > 0;)
      for (auto& [before, node] : levels[i]) node = member_grammar(before, i, levels[i + 1]);
    return levels[0].begin()->second;
  }

  Node member_grammar(const Progress& before, size_t i, const std::map<Progress, Node>& next) {
    const auto with = after(before, i, true), without = after(before, i, false);
    const Node member = members_[i].node;
    const Node here = before.count > 0 ? g_.sequence({comma_, member}) : member;
    if (with && with == without) return g_.named(g_.sequence({g_.optional(here), next.at(*with)}));
    std::vector<Node> ways;
    if (with) ways.push_back(g_.sequence({here, next.at(*with)}));
    if (without) ways.push_back(next.at(*without));
    return g_.named(g_.choice(std::move(ways)));
  }

  const char* combining_keyword() const {
    if (s_.contains("dependentRequired")) return "dependentRequired";
    return max_ >= 0 ? "maxProperties" : "minProperties";
  }

  Node others_grammar(int64_t count) {
    const int64_t least = std::max<int64_t>(min_ - count, 0);
    if (others_) return others_->members(least, max_ < 0 ? -1 : max_ - count, count == 0);
    return least > 0 ? g_.choice({}) : g_.sequence({});
  }

  Subschemas& sub_;
  JsonGrammar& json_;
  Grammar& g_;
  const Schema& s_;
  const std::string& path_;
  const int depth_;
  const Node comma_;
  std::vector<Member> members_;
  std::map<std::string, size_t, std::less<>> place_;
  std::vector<std::pair<std::string, Schema>> patterns_;
  bool is_open_ = false;  // additional members are allowed
  std::optional<Node> additional_value_;
  std::optional<AdditionalMembers> others_;
  int64_t min_ = 0, max_ = -1, max_count_ = 0;
};

}  // namespace

Node object_schema_grammar(Subschemas& subschemas, const Schema& s, const std::string& path,
                           int depth) {
  constexpr std::array kObjectKeywords = {
      "properties",    "required",      "additionalProperties", "minProperties",
      "maxProperties", "propertyNames", "dependentRequired",    "patternProperties"};
  const bool is_any =
      std::ranges::none_of(kObjectKeywords, [&](const char* name) { return s.contains(name); });
  return is_any ? subschemas.json().object() : ObjectBuilder(subschemas, s, path, depth).build();
}

}  // namespace trireme
