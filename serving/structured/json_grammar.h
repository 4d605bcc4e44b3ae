// Grammar rules of JSON (RFC 8259) that schemas share.
//
// The rules are narrower than JSON, so that texts end and every parser accepts them. Between values
// there is nothing, a space, or a line end with up to 20 spaces. Integers have up to 18 digits,
// fractions up to 17, exponents up to 2. \u escapes of surrogates occur only in pairs.
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
  Grammar::Node string();     // any string; this and plain_key() include the quotes
  Grammar::Node long_char();  // character in a string, of two or more bytes; all escapes, too
  Grammar::Node any_char();   // character in a string, without calling a rule
  Grammar::Node plain_key(
      const std::vector<std::string>& except);  // any key without escapes, except these
  // With bounds as bounded_number() and bounded_integer() (number_grammar.h).
  Grammar::Node number(const NumberBounds& bounds);
  Grammar::Node integer(const NumberBounds& bounds);
  Grammar::Node value();   // any value
  Grammar::Node object();  // any object
  Grammar::Node array();   // any array
  // Node cached under a key; made on first use.
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
