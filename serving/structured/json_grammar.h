// The rules of JSON that schemas share (RFC 8259).
//
// Texts are narrower than JSON, so that they end and every reader takes them: between values stands
// nothing, a space, or a line end with up to 20 spaces; integers have up to 18 digits, fractions up
// to 17, exponents up to 2; no escape stands for half of a surrogate pair.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "serving/structured/grammar.h"
#include "serving/structured/number_grammar.h"

namespace trireme {

class JsonGrammar {
 public:
  explicit JsonGrammar(Grammar& grammar) : grammar_(grammar) {}

  Grammar& grammar() { return grammar_; }
  Grammar::Node space();
  Grammar::Node string();     // any
  Grammar::Node long_char();  // a character of its content that takes more than a byte
  Grammar::Node any_char();   // a character of its content, with no call of a rule
  Grammar::Node plain_key(
      const std::vector<std::string>& except);  // without escapes, none of these
  Grammar::Node number(const NumberBounds& bounds);
  Grammar::Node integer(const NumberBounds& bounds);
  Grammar::Node value();   // any
  Grammar::Node object();  // any
  Grammar::Node array();   // any
  // Node of a key, made once.
  Grammar::Node shared(const std::string& key, const std::function<Grammar::Node()>& make);

 private:
  Grammar::Node shared(int32_t& rule, Grammar::Node (JsonGrammar::*make)());
  Grammar::Node make_space();
  Grammar::Node make_string();
  Grammar::Node make_long_char();
  Grammar::Node make_number();
  Grammar::Node make_integer();
  Grammar::Node make_value();
  Grammar::Node make_object();
  Grammar::Node make_array();
  Grammar::Node key_except(const std::vector<std::u32string>& names, size_t begin, size_t end,
                           size_t depth);
  Grammar& grammar_;
  std::map<std::string, Grammar::Node, std::less<>> shared_;
  int32_t space_ = -1, string_ = -1, long_char_ = -1, number_ = -1, integer_ = -1, value_ = -1,
          object_ = -1, array_ = -1;
};

}  // namespace trireme
