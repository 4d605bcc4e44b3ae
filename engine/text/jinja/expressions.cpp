#include "engine/text/jinja/expressions.h"

#include <algorithm>
#include <charconv>

#include "engine/core/error.h"
#include "engine/text/jinja/expression_nodes.h"

namespace trireme::jinja {
namespace {

template <class Node, class... Parts>
ExpressionPtr make(int line, Parts&&... parts) {
  return std::make_unique<Node>(line, std::forward<Parts>(parts)...);
}

}  // namespace

bool Tokens::take_symbol(std::string_view s) {
  if (!is_symbol(s)) return false;
  advance();
  return true;
}
bool Tokens::take_name(std::string_view s) {
  if (!is_name(s)) return false;
  advance();
  return true;
}
void Tokens::want_symbol(std::string_view s) {
  if (!take_symbol(s)) fail_here(concat("\"", s, "\" is missing"));
}
void Tokens::want_name(std::string_view s) {
  if (!take_name(s)) fail_here(concat("\"", s, "\" is missing"));
}
void Tokens::want(TokenKind kind, const char* what) {
  if (now().kind != kind) fail_here(concat(what, " is missing"));
  advance();
}
std::string Tokens::want_any_name() {
  if (now().kind != TokenKind::kName) fail_here("a name is missing");
  std::string name = now().text;
  advance();
  return name;
}
void Tokens::fail_here(const std::string& what) const {
  const std::string before =
      now().kind == TokenKind::kEnd ? "the end" : concat("\"", now().text.substr(0, 40), "\"");
  fail(concat("line ", now().line, ": ", what, " before ", before));
}

void ExpressionReader::link() {
  if (++links_ > kMaxLinks) t_.fail_here("an expression is too long");
}

ExpressionPtr ExpressionReader::read() {
  if (nesting_ == 0) links_ = 0;
  if (++nesting_ > kMaxNesting) t_.fail_here("an expression is nested too deeply");
  ExpressionPtr e = read_or();
  while (t_.is_name("if")) {
    link();
    const int line = t_.now().line;
    t_.advance();
    ExpressionPtr condition = read_or();
    ExpressionPtr other = t_.take_name("else") ? read() : nullptr;
    e = make<Condition>(line, std::move(e), std::move(condition), std::move(other));
  }
  --nesting_;
  return e;
}

ExpressionPtr ExpressionReader::read_or_tuple() {
  const int line = t_.now().line;
  ExpressionPtr first = read();
  if (!t_.is_symbol(",")) return first;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (t_.take_symbol(","))
    if (t_.now().kind != TokenKind::kBlockEnd && t_.now().kind != TokenKind::kPrintEnd)
      items.push_back(read());
  return make<ListOf>(line, std::move(items), true);
}

ExpressionPtr ExpressionReader::read_iterable() {
  const int line = t_.now().line;
  ExpressionPtr first = read_or();
  if (!t_.is_symbol(",")) return first;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (t_.take_symbol(","))
    if (t_.now().kind != TokenKind::kBlockEnd && !t_.is_name("if") && !t_.is_name("recursive"))
      items.push_back(read_or());
  return make<ListOf>(line, std::move(items), true);
}

ExpressionPtr ExpressionReader::read_or() {
  if (nesting_ == 0) links_ = 0;
  ExpressionPtr e = read_and();
  while (t_.is_name("or")) {
    link();
    const int line = t_.now().line;
    t_.advance();
    e = make<Logical>(line, std::move(e), read_and(), false);
  }
  return e;
}

ExpressionPtr ExpressionReader::read_and() {
  ExpressionPtr e = read_not();
  while (t_.is_name("and")) {
    link();
    const int line = t_.now().line;
    t_.advance();
    e = make<Logical>(line, std::move(e), read_not(), true);
  }
  return e;
}

ExpressionPtr ExpressionReader::read_not() {
  if (!t_.is_name("not")) return read_compare();
  const int line = t_.now().line;
  t_.advance();
  if (++nesting_ > kMaxNesting) t_.fail_here("an expression is nested too deeply");
  ExpressionPtr e = make<Not>(line, read_not());
  --nesting_;
  return e;
}

ExpressionPtr ExpressionReader::read_compare() {
  const int line = t_.now().line;
  ExpressionPtr first = read_sum();
  Comparison::Links links;
  for (;;) {
    std::string operation;
    for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"})
      if (t_.is_symbol(symbol)) operation = symbol;
    if (t_.is_name("in")) operation = "in";
    if (t_.is_name("not") && t_.next().kind == TokenKind::kName && t_.next().text == "in") {
      operation = "not in";
      t_.advance();
    }
    if (operation.empty()) break;
    t_.advance();
    links.emplace_back(operation, read_sum());
  }
  return links.empty() ? std::move(first)
                       : make<Comparison>(line, std::move(first), std::move(links));
}

ExpressionPtr ExpressionReader::read_sum() {
  ExpressionPtr e = read_concat();
  while (t_.is_symbol("+") || t_.is_symbol("-")) {
    link();
    const Token operation = t_.now();
    t_.advance();
    e = make<Calculation>(operation.line, operation.text, std::move(e), read_concat());
  }
  return e;
}

ExpressionPtr ExpressionReader::read_concat() {
  ExpressionPtr e = read_product();
  while (t_.is_symbol("~")) {
    link();
    const int line = t_.now().line;
    t_.advance();
    e = make<Calculation>(line, "~", std::move(e), read_product());
  }
  return e;
}

ExpressionPtr ExpressionReader::read_product() {
  ExpressionPtr e = read_power();
  while (t_.is_symbol("*") || t_.is_symbol("/") || t_.is_symbol("//") || t_.is_symbol("%")) {
    link();
    const Token operation = t_.now();
    t_.advance();
    e = make<Calculation>(operation.line, operation.text, std::move(e), read_power());
  }
  return e;
}

ExpressionPtr ExpressionReader::read_power() {
  ExpressionPtr e = read_unary(true);
  while (t_.is_symbol("**")) {
    link();
    const int line = t_.now().line;
    t_.advance();
    e = make<Calculation>(line, "**", std::move(e), read_unary(true));
  }
  return e;
}

ExpressionPtr ExpressionReader::read_unary(bool filters) {
  ExpressionPtr e;
  if (t_.is_symbol("-") || t_.is_symbol("+")) {
    const Token sign = t_.now();
    t_.advance();
    if (++nesting_ > kMaxNesting) t_.fail_here("an expression is nested too deeply");
    e = make<Calculation>(sign.line, sign.text, make<Constant>(sign.line, Value(int64_t{0})),
                          read_unary(false));
    --nesting_;
  } else {
    e = read_primary();
  }
  e = read_postfix(std::move(e));
  return filters ? read_filters(std::move(e)) : std::move(e);
}

ExpressionPtr ExpressionReader::read_primary() {
  const Token token = t_.now();
  const auto constant = [&](Value v) {
    t_.advance();
    return make<Constant>(token.line, std::move(v));
  };
  if (token.kind == TokenKind::kName) {
    if (token.text == "true" || token.text == "True") return constant(true);
    if (token.text == "false" || token.text == "False") return constant(false);
    if (token.text == "none" || token.text == "None") return constant(Value());
    t_.advance();
    if (token.text == "caller") specials.caller = true;
    if (token.text == "kwargs") specials.kwargs = true;
    if (token.text == "varargs") specials.varargs = true;
    return make<Name>(token.line, token.text);
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    for (; t_.now().kind == TokenKind::kString; t_.advance())
      text += t_.now().text;  // adjacent strings are concatenated
    return make<Constant>(token.line, Value(std::move(text)));
  }
  const char *begin = token.text.data(), *end = begin + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    int64_t i = 0;
    if (std::from_chars(begin, end, i).ec != std::errc()) t_.fail_here("a number is too large");
    return constant(i);
  }
  if (token.kind == TokenKind::kReal) {
    double d = 0;
    if (std::from_chars(begin, end, d).ec != std::errc()) t_.fail_here("a number is too large");
    return constant(d);
  }
  return read_bracket();
}

ExpressionPtr ExpressionReader::read_bracket() {
  const int line = t_.now().line;
  if (t_.is_symbol("{")) return read_dict();
  const bool tuple = t_.is_symbol("(");
  if (!tuple && !t_.is_symbol("[")) t_.fail_here("a value is missing");
  const char* const close = tuple ? ")" : "]";
  t_.advance();
  std::vector<ExpressionPtr> items;
  bool comma = false;
  while (!t_.is_symbol(close)) {
    items.push_back(read());
    if (t_.is_symbol(close)) break;
    t_.want_symbol(",");
    comma = true;
  }
  t_.want_symbol(close);
  if (tuple && items.size() == 1 && !comma) return std::move(items[0]);
  return make<ListOf>(line, std::move(items), tuple);
}

ExpressionPtr ExpressionReader::read_dict() {
  const int line = t_.now().line;
  t_.want_symbol("{");
  DictOf::Items items;
  while (!t_.is_symbol("}")) {
    ExpressionPtr key = read();
    t_.want_symbol(":");
    items.emplace_back(std::move(key), read());
    if (!t_.is_symbol("}")) t_.want_symbol(",");
  }
  t_.want_symbol("}");
  return make<DictOf>(line, std::move(items));
}

ExpressionPtr ExpressionReader::read_postfix(ExpressionPtr e) {
  for (;;) {
    link();
    const int line = t_.now().line;
    if (t_.take_symbol(".")) {
      if (t_.now().kind == TokenKind::kInteger)
        e = make<Item>(line, std::move(e), read_primary());
      else
        e = make<Attribute>(line, std::move(e), t_.want_any_name());
    } else if (t_.take_symbol("[")) {
      e = read_index(std::move(e));
    } else if (t_.take_symbol("(")) {
      e = make<Call>(line, std::move(e), read_arguments());
    } else {
      return e;
    }
  }
}

ExpressionPtr ExpressionReader::read_index(ExpressionPtr e) {
  const int line = t_.now().line;
  ExpressionPtr parts[3];
  int part = 0;
  bool slice = false;
  for (;;) {
    if (t_.take_symbol("]")) break;
    if (t_.take_symbol(":")) {
      slice = true;
      if (++part > 2) t_.fail_here("a slice has too many parts");
      continue;
    }
    if (parts[part] != nullptr) t_.fail_here("\"]\" is missing");
    parts[part] = read();
  }
  if (slice)
    return make<Slice>(line, std::move(e), std::move(parts[0]), std::move(parts[1]),
                       std::move(parts[2]));
  if (parts[0] == nullptr) t_.fail_here("an index is missing");
  return make<Item>(line, std::move(e), std::move(parts[0]));
}

CallArguments ExpressionReader::read_arguments() {
  CallArguments a;
  const auto want = [&](bool in_order) {
    if (!in_order) t_.fail_here("the arguments of a call are not in order");
  };
  while (!t_.take_symbol(")")) {
    if (t_.take_symbol("*")) {
      want(!a.more_positional && !a.more_named);
      a.more_positional = read();
    } else if (t_.take_symbol("**")) {
      want(!a.more_named);
      a.more_named = read();
    } else if (t_.now().kind == TokenKind::kName && t_.next().kind == TokenKind::kSymbol &&
               t_.next().text == "=") {
      want(!a.more_named);
      std::string name = t_.want_any_name();
      if (std::ranges::any_of(a.named, [&](const auto& given) { return given.first == name; }))
        t_.fail_here(concat("the argument \"", name, "\" is given twice"));
      t_.want_symbol("=");
      a.named.emplace_back(std::move(name), read());
    } else {
      want(!a.more_positional && !a.more_named && a.named.empty());
      a.positional.push_back(read());
    }
    if (!t_.is_symbol(")")) t_.want_symbol(",");
  }
  return a;
}

ExpressionPtr ExpressionReader::read_filters(ExpressionPtr e) {
  for (;;) {
    link();
    if (t_.take_symbol("|")) {
      e = read_filter(std::move(e));
    } else if (t_.take_name("is")) {
      e = read_test(std::move(e));
    } else if (t_.is_symbol(".") || t_.is_symbol("[") || t_.is_symbol("(")) {
      e = read_postfix(std::move(e));
    } else {
      return e;
    }
  }
}

ExpressionPtr ExpressionReader::read_filter(ExpressionPtr e) {
  const int line = t_.now().line;
  std::string name = t_.want_any_name();
  while (t_.take_symbol(".")) name += '.' + t_.want_any_name();
  return make<Filtered>(line, std::move(e), std::move(name),
                        t_.take_symbol("(") ? read_arguments() : CallArguments());
}

ExpressionPtr ExpressionReader::read_block_filters(bool bare_first) {
  if (!bare_first && !t_.is_symbol("|")) return nullptr;
  links_ = 0;
  ExpressionPtr e = make<Given>(t_.now().line);
  for (bool more = bare_first || t_.take_symbol("|"); more; more = t_.take_symbol("|")) {
    link();
    e = read_filter(std::move(e));
  }
  return e;
}

ExpressionPtr ExpressionReader::read_test(ExpressionPtr e) {
  const int line = t_.now().line;
  const bool negated = t_.take_name("not");
  std::string name = t_.want_any_name();
  CallArguments arguments;
  if (t_.take_symbol("(")) {
    arguments = read_arguments();
  } else {
    // A single argument may have no parentheses.
    static const std::set<std::string, std::less<>> kOperators = {"else", "or",  "and", "is",
                                                                  "in",   "not", "if"};
    const Token& now = t_.now();
    const bool value = now.kind == TokenKind::kString || now.kind == TokenKind::kInteger ||
                       now.kind == TokenKind::kReal || t_.is_symbol("[") || t_.is_symbol("{") ||
                       (now.kind == TokenKind::kName && !kOperators.contains(now.text));
    if (value) arguments.positional.push_back(read_postfix(read_primary()));
  }
  return make<Tested>(line, std::move(e), std::move(name), std::move(arguments), negated);
}

Arguments CallArguments::values(Renderer& r, const ScopePtr& scope) const {
  Arguments out;
  for (const auto& e : positional) out.positional.push_back(e->value(r, scope));
  for (const auto& [name, e] : named) out.named.emplace_back(name, e->value(r, scope));
  if (more_positional)
    for (const Value& v : elements_of(more_positional->value(r, scope)))
      out.positional.push_back(v);
  if (!more_named) return out;
  const Value more = more_named->value(r, scope);
  if (more.dict() == nullptr)
    fail(concat("the value after ** is a ", type_name(more), ", expected a dict"));
  spend(std::ssize(more.dict()->items()) * (1 + std::ssize(named)));
  for (const auto& [name, value] : more.dict()->items()) {
    for (const auto& given : named)
      if (given.first == name) fail(concat("the argument \"", name, "\" is given twice"));
    out.named.emplace_back(name, value);
  }
  return out;
}

}  // namespace trireme::jinja
