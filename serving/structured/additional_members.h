// Members of an object whose names its schema does not give. For .cpp files only (it includes the
// JSON library).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "serving/structured/subschemas.h"

namespace trireme {

class AdditionalMembers {
 public:
  // s: constraints of the object; named: names of other members, which these may not have. value:
  // grammar of their values. References must outlive this object.
  AdditionalMembers(Subschemas& subschemas, const Schema& s, std::vector<std::string> named,
                    Grammar::Node value, const std::string& path, int depth);

  // Grammar of least or more different members, at most `most` (most < 0: without bound), where
  // others are before them or not.
  Grammar::Node members(int64_t least, int64_t most, bool is_first);

 private:
  Grammar::Node make_members(int64_t least, int64_t most, bool is_first);
  Grammar::Node different_members(int64_t least, int64_t most, bool is_first);
  Grammar::Node key();
  Grammar::Node key_of_class(size_t sum);
  Schema name_constraints();
  Grammar::Node member(Grammar::Node key_node);
  Grammar::Node any_member();
  Grammar::Node after_comma(bool is_first, Grammar::Node next) {
    return is_first ? next : g_.sequence({comma_, next});
  }

  Subschemas& sub_;
  JsonGrammar& json_;
  Grammar& g_;
  const Schema& s_;
  const std::vector<std::string> named_;
  const Grammar::Node value_;
  const std::string& path_;
  const int depth_;
  const Grammar::Node comma_;
  std::optional<Grammar::Node> any_;
  std::vector<Grammar::Node> of_class_;
  std::map<std::tuple<int64_t, int64_t, bool>, Grammar::Node> known_;
};

}  // namespace trireme
