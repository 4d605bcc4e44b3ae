// Additional members of an object: those whose names its schema does not list. For .cpp files only
// (it includes the JSON library).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "serving/structured/string_schema.h"
#include "serving/structured/subschemas.h"

namespace trireme {

// One kind of additional member: its names and values.
struct MemberKind {
  std::string pattern = {};  // regular expression of the names; unused if has_pattern is false
  bool has_pattern = false;
  std::vector<FiniteAutomaton> automata = {};  // each must accept the names, too
  Grammar::Node value = -1;                    // grammar of the values
};

class AdditionalMembers {
 public:
  // s: constraints of the object. named: names of the listed members, which additional members
  // cannot have. path: of the object's schema, for errors; depth: its nesting level. The referenced
  // objects must outlive this one. InputError for a listed name of more than 128 bytes.
  AdditionalMembers(Subschemas& subschemas, const Schema& s, std::vector<std::string> named,
                    std::vector<MemberKind> kinds, const std::string& path, int depth);

  // Grammar of at most `most` additional members (most < 0: unbounded), of which at least `least`
  // have different names; other names may repeat. It matches nothing if least > most. is_first: no
  // member, and so no comma, precedes them. InputError if least > 4, or if least > 1 and most > 64,
  // or if propertyNames is not supported here.
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
