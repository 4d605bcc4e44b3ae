// Members of an object whose names its schema does not give. For .cpp files only (it includes the
// JSON library).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "serving/structured/string_schema.h"
#include "serving/structured/subschemas.h"

namespace trireme {

// Names and values of some of them.
struct MemberKind {
  std::string pattern = {};  // of the names; absent if has_pattern is false
  bool has_pattern = false;
  std::vector<FiniteAutomaton> automata = {};  // which the names are texts of, too
  Grammar::Node value = -1;
};

class AdditionalMembers {
 public:
  // s: constraints of the object; named: names of other members, which these may not have.
  // References must outlive this object.
  AdditionalMembers(Subschemas& subschemas, const Schema& s, std::vector<std::string> named,
                    std::vector<MemberKind> kinds, const std::string& path, int depth);

  // Grammar of least or more different members, at most `most` (most < 0: without bound), where
  // others are before them or not.
  Grammar::Node members(int64_t least, int64_t most, bool is_first);

 private:
  Grammar::Node make_members(int64_t least, int64_t most, bool is_first);
  Grammar::Node different_members(int64_t least, int64_t most, bool is_first);
  Grammar::Node key(const MemberKind& kind);
  Grammar::Node key_of_class(const MemberKind& kind, size_t sum);
  Grammar::Node member_of_class(size_t sum);
  bool has_constraints(const MemberKind& kind) const;
  Schema names_of(const MemberKind& kind) const;
  std::string path_of(const MemberKind& kind) const {
    return path_ + (kind.has_pattern ? "/patternProperties" : "/propertyNames");
  }
  StringBodies bodies_of(const MemberKind& kind);
  Grammar::Node member(Grammar::Node key_node, Grammar::Node value);
  Grammar::Node any_member();
  Grammar::Node after_comma(bool is_first, Grammar::Node next) {
    return is_first ? next : g_.sequence({comma_, next});
  }

  Subschemas& sub_;
  JsonGrammar& json_;
  Grammar& g_;
  const Schema& s_;
  const std::vector<std::string> named_;
  const std::vector<MemberKind> kinds_;
  const std::string& path_;
  const int depth_;
  const Grammar::Node comma_;
  std::optional<Grammar::Node> any_;
  std::vector<Grammar::Node> of_class_;
  std::map<std::tuple<int64_t, int64_t, bool>, Grammar::Node> known_;
};

}  // namespace trireme
