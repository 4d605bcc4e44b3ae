// Parser of expressions: the grammar of Jinja2, with its precedence.
#pragma once

#include <set>

#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// Cursor over the tokens of a template.
class Tokens {
 public:
  explicit Tokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void advance() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  bool is_symbol(std::string_view s) const {
    return now().kind == TokenKind::kSymbol && now().text == s;
  }
  bool is_name(std::string_view s) const {
    return now().kind == TokenKind::kName && now().text == s;
  }
  // take_: if the current token is this one, consumes it and returns true. want_: consumes it, or
  // fails if it is another.
  bool take_symbol(std::string_view s);
  bool take_name(std::string_view s);
  void want_symbol(std::string_view s);
  void want_name(std::string_view s);
  void want(TokenKind kind, const char* what);
  std::string want_any_name();
  [[noreturn]] void fail_here(const std::string& what) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

inline constexpr int kMaxNesting = 200;  // of brackets and blocks in a source
// Maximum number of operators, members and filters in an expression: each is a level of the
// evaluated tree.
inline constexpr int kMaxLinks = 2000;

class ExpressionReader {
 public:
  explicit ExpressionReader(Tokens& tokens) : t_(tokens) {}
  ExpressionPtr read();           // a conditional expression
  ExpressionPtr read_or_tuple();  // the same, or a tuple without parentheses: a, b
  ExpressionPtr read_or();        // without a condition, as in the filter of a for
  ExpressionPtr read_iterable();  // of a for: read_or(), or a tuple of such without parentheses
  // Reads the filters of a block, whose input is Renderer::given: "| upper | trim", or with
  // bare_first "upper | trim". nullptr if there are none.
  ExpressionPtr read_block_filters(bool bare_first);

  // Implicit arguments of a macro that have been read since the caller last reset this.
  struct Specials {
    bool caller = false, kwargs = false, varargs = false;
  };
  Specials specials;

 private:
  ExpressionPtr read_and();
  ExpressionPtr read_not();
  ExpressionPtr read_compare();
  ExpressionPtr read_sum();
  ExpressionPtr read_concat();
  ExpressionPtr read_product();
  ExpressionPtr read_power();
  ExpressionPtr read_unary(bool filters);
  ExpressionPtr read_primary();
  ExpressionPtr read_bracket();
  ExpressionPtr read_dict();
  ExpressionPtr read_postfix(ExpressionPtr e);
  ExpressionPtr read_index(ExpressionPtr e);
  CallArguments read_arguments();  // after "("
  ExpressionPtr read_filters(ExpressionPtr e);
  ExpressionPtr read_filter(ExpressionPtr e);
  ExpressionPtr read_test(ExpressionPtr e);
  void link();
  Tokens& t_;
  int nesting_ = 0, links_ = 0;
};

}  // namespace trireme::jinja
