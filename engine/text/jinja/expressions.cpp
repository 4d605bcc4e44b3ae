#include "engine/text/jinja/expressions.h"

#include <charconv>
#include <climits>

#include "engine/core/error.h"

namespace trireme::jinja {
namespace {

struct Constant : Expression {
  Constant(int at, Value v) : Expression(at), v_(std::move(v)) {}
  Value value(Renderer& r, const ScopePtr&) const override { return r.step(), v_; }
  const Value v_;
};

struct Name : Expression {
  Name(int at, std::string n) : Expression(at), name_(std::move(n)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value* found = scope->find(name_);
    return found != nullptr ? *found : Value(Undefined{name_});
  }
  const std::string name_;
};

struct ListOf : Expression {
  ListOf(int at, std::vector<ExpressionPtr> items) : Expression(at), items_(std::move(items)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    List list;
    for (const auto& item : items_) list.push_back(item->value(r, scope));
    return list;
  }
  const std::vector<ExpressionPtr> items_;
};

struct DictOf : Expression {
  using Items = std::vector<std::pair<ExpressionPtr, ExpressionPtr>>;
  DictOf(int at, Items items) : Expression(at), items_(std::move(items)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    Dict dict;
    for (const auto& [key, item] : items_) {
      const Value k = key->value(r, scope);
      if (k.string() == nullptr)
        fail(concat("line ", line, ": a key of a dict is a ", type_name(k)));
      dict[*k.string()] = item->value(r, scope);
    }
    return dict;
  }
  const Items items_;
};

struct Attribute : Expression {
  Attribute(int at, ExpressionPtr of, std::string n)
      : Expression(at), of_(std::move(of)), name_(std::move(n)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value v = of_->value(r, scope);
    if (v.is_undefined())
      fail(concat("line ", line, ": \"", v.undefined_name(), "\" is undefined, so it has no \"",
                  name_, "\""));
    return attribute_of(r, v, name_);
  }
  const ExpressionPtr of_;
  const std::string name_;
};

struct Item : Expression {
  Item(int at, ExpressionPtr of, ExpressionPtr i)
      : Expression(at), of_(std::move(of)), index_(std::move(i)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value v = of_->value(r, scope);
    if (v.is_undefined())
      fail(concat("line ", line, ": \"", v.undefined_name(),
                  "\" is undefined, so it has no elements"));
    const Value index = index_->value(r, scope);
    Value found = item_of(v, index);
    // A name that is no key may be a method.
    if (!found.is_undefined() || index.string() == nullptr || v.dict()) return found;
    return attribute_of(r, v, *index.string());
  }
  const ExpressionPtr of_, index_;
};

struct Slice : Expression {
  Slice(int at, ExpressionPtr of, ExpressionPtr b, ExpressionPtr e, ExpressionPtr s)
      : Expression(at),
        of_(std::move(of)),
        begin_(std::move(b)),
        end_(std::move(e)),
        step_(std::move(s)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const auto bound = [&](const ExpressionPtr& e, int64_t absent) {
      if (e == nullptr) return absent;
      const Value v = e->value(r, scope);
      int64_t i = 0;
      if (v.is_none()) return absent;
      if (!v.to_integer(i)) fail(concat("line ", line, ": a bound of a slice is a ", type_name(v)));
      return std::max(i, INT64_MIN / 4);
    };
    const Value v = of_->value(r, scope);
    const int64_t begin = bound(begin_, INT64_MIN), end = bound(end_, INT64_MIN),
                  step = bound(step_, 1);
    if (v.string()) return slice_of(*v.string(), begin, end, step);
    if (v.list()) return slice_of(*v.list(), begin, end, step);
    fail(concat("line ", line, ": a ", type_name(v), " has no slices"));
  }
  const ExpressionPtr of_, begin_, end_, step_;
};

struct Call : Expression {
  Call(int at, ExpressionPtr f, CallArguments a)
      : Expression(at), function_(std::move(f)), arguments_(std::move(a)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value f = function_->value(r, scope);
    return call(r, f, arguments_.values(r, scope), line);
  }
  const ExpressionPtr function_;
  const CallArguments arguments_;
};

struct Filtered : Expression {
  Filtered(int at, ExpressionPtr of, Filter f, CallArguments a)
      : Expression(at), of_(std::move(of)), filter_(f), arguments_(std::move(a)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value v = of_->value(r, scope);
    return filter_(r, v, arguments_.values(r, scope));
  }
  const ExpressionPtr of_;
  const Filter filter_;
  const CallArguments arguments_;
};

struct Tested : Expression {
  Tested(int at, ExpressionPtr of, Test t, CallArguments a, bool negated)
      : Expression(at), of_(std::move(of)), test_(t), arguments_(std::move(a)), negated_(negated) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value v = of_->value(r, scope);
    return test_(v, arguments_.values(r, scope)) != negated_;
  }
  const ExpressionPtr of_;
  const Test test_;
  const CallArguments arguments_;
  const bool negated_;
};

struct Condition : Expression {
  Condition(int at, ExpressionPtr yes, ExpressionPtr c, ExpressionPtr no)
      : Expression(at), yes_(std::move(yes)), condition_(std::move(c)), no_(std::move(no)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    if (condition_->value(r, scope).truth()) return yes_->value(r, scope);
    return no_ ? no_->value(r, scope) : Value(Undefined{"the else of a condition"});
  }
  const ExpressionPtr yes_, condition_, no_;
};

struct Logical : Expression {
  Logical(int at, ExpressionPtr a, ExpressionPtr b, bool is_and)
      : Expression(at), a_(std::move(a)), b_(std::move(b)), and_(is_and) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value first = a_->value(r, scope);
    return first.truth() == and_ ? b_->value(r, scope) : first;
  }
  const ExpressionPtr a_, b_;
  const bool and_;
};

struct Not : Expression {
  Not(int at, ExpressionPtr e) : Expression(at), e_(std::move(e)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    return !e_->value(r, scope).truth();
  }
  const ExpressionPtr e_;
};

struct Comparison : Expression {
  using Links = std::vector<std::pair<std::string, ExpressionPtr>>;
  Comparison(int at, ExpressionPtr first, Links links)
      : Expression(at), first_(std::move(first)), links_(std::move(links)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    Value left = first_->value(r, scope);
    for (const auto& [operation, e] : links_) {
      Value right = e->value(r, scope);
      if (!holds(operation, left, right)) return false;
      left = std::move(right);
    }
    return true;
  }
  static bool holds(const std::string& operation, const Value& a, const Value& b) {
    if (operation == "==") return equal(a, b);
    if (operation == "!=") return !equal(a, b);
    if (operation == "in") return contains(b, a);
    if (operation == "not in") return !contains(b, a);
    if (operation == "<") return less(a, b);
    if (operation == ">") return less(b, a);
    return operation == "<=" ? !less(b, a) : !less(a, b);
  }
  const ExpressionPtr first_;
  const Links links_;
};

struct Calculation : Expression {
  Calculation(int at, std::string o, ExpressionPtr a, ExpressionPtr b)
      : Expression(at), operation_(std::move(o)), a_(std::move(a)), b_(std::move(b)) {}
  Value value(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    const Value a = a_->value(r, scope), b = b_->value(r, scope);
    return calculate(r, operation_, a, b);
  }
  const std::string operation_;
  const ExpressionPtr a_, b_;
};

template <class Node, class... Parts>
ExpressionPtr make(int line, Parts&&... parts) {
  return std::make_unique<Node>(line, std::forward<Parts>(parts)...);
}

}  // namespace

bool Tokens::take_symbol(std::string_view s) {
  if (!is_symbol(s)) return false;
  go_on();
  return true;
}
bool Tokens::take_name(std::string_view s) {
  if (!is_name(s)) return false;
  go_on();
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
  go_on();
}
std::string Tokens::want_any_name() {
  if (now().kind != TokenKind::kName) fail_here("a name is missing");
  std::string name = now().text;
  go_on();
  return name;
}
void Tokens::fail_here(const std::string& what) const {
  const std::string before =
      now().kind == TokenKind::kEnd ? "the end" : concat("\"", now().text.substr(0, 40), "\"");
  fail(concat("line ", now().line, ": ", what, " before ", before));
}

void ExpressionReader::link() {
  if (++links_ > kMostLinks) t_.fail_here("an expression is too long");
}

ExpressionPtr ExpressionReader::read() {
  if (nesting_ == 0) links_ = 0;
  if (++nesting_ > kMostNesting) t_.fail_here("an expression is nested too deeply");
  ExpressionPtr e = read_or();
  while (t_.is_name("if")) {
    link();
    const int line = t_.now().line;
    t_.go_on();
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
  return make<ListOf>(line, std::move(items));
}

ExpressionPtr ExpressionReader::read_or() {
  if (nesting_ == 0) links_ = 0;
  ExpressionPtr e = read_and();
  while (t_.is_name("or")) {
    link();
    const int line = t_.now().line;
    t_.go_on();
    e = make<Logical>(line, std::move(e), read_and(), false);
  }
  return e;
}

ExpressionPtr ExpressionReader::read_and() {
  ExpressionPtr e = read_not();
  while (t_.is_name("and")) {
    link();
    const int line = t_.now().line;
    t_.go_on();
    e = make<Logical>(line, std::move(e), read_not(), true);
  }
  return e;
}

ExpressionPtr ExpressionReader::read_not() {
  if (!t_.is_name("not")) return read_compare();
  const int line = t_.now().line;
  t_.go_on();
  if (++nesting_ > kMostNesting) t_.fail_here("an expression is nested too deeply");
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
      t_.go_on();
    }
    if (operation.empty()) break;
    t_.go_on();
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
    t_.go_on();
    e = make<Calculation>(operation.line, operation.text, std::move(e), read_concat());
  }
  return e;
}

ExpressionPtr ExpressionReader::read_concat() {
  ExpressionPtr e = read_product();
  while (t_.is_symbol("~")) {
    link();
    const int line = t_.now().line;
    t_.go_on();
    e = make<Calculation>(line, "~", std::move(e), read_product());
  }
  return e;
}

ExpressionPtr ExpressionReader::read_product() {
  ExpressionPtr e = read_power();
  while (t_.is_symbol("*") || t_.is_symbol("/") || t_.is_symbol("//") || t_.is_symbol("%")) {
    link();
    const Token operation = t_.now();
    t_.go_on();
    e = make<Calculation>(operation.line, operation.text, std::move(e), read_power());
  }
  return e;
}

ExpressionPtr ExpressionReader::read_power() {
  ExpressionPtr e = read_unary(true);
  while (t_.is_symbol("**")) {
    link();
    const int line = t_.now().line;
    t_.go_on();
    e = make<Calculation>(line, "**", std::move(e), read_unary(true));
  }
  return e;
}

ExpressionPtr ExpressionReader::read_unary(bool filters) {
  ExpressionPtr e;
  if (t_.is_symbol("-") || t_.is_symbol("+")) {
    const Token sign = t_.now();
    t_.go_on();
    if (++nesting_ > kMostNesting) t_.fail_here("an expression is nested too deeply");
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
    t_.go_on();
    return make<Constant>(token.line, std::move(v));
  };
  if (token.kind == TokenKind::kName) {
    if (token.text == "true" || token.text == "True") return constant(true);
    if (token.text == "false" || token.text == "False") return constant(false);
    if (token.text == "none" || token.text == "None") return constant(Value());
    t_.go_on();
    return make<Name>(token.line, token.text);
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    for (; t_.now().kind == TokenKind::kString; t_.go_on())
      text += t_.now().text;  // neighbours are one
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
  t_.go_on();
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
  return make<ListOf>(line, std::move(items));
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
  while (!t_.take_symbol(")")) {
    if (t_.now().kind == TokenKind::kName && t_.next().kind == TokenKind::kSymbol &&
        t_.next().text == "=") {
      std::string name = t_.want_any_name();
      t_.want_symbol("=");
      a.named.emplace_back(std::move(name), read());
    } else {
      a.positional.push_back(read());
    }
    if (!t_.is_symbol(")")) t_.want_symbol(",");
  }
  return a;
}

ExpressionPtr ExpressionReader::read_filters(ExpressionPtr e) {
  for (;;) {
    link();
    const int line = t_.now().line;
    if (t_.take_symbol("|")) {
      const std::string name = t_.want_any_name();
      const Filter filter = find_filter(name);
      if (filter == nullptr)
        fail(concat("line ", line, ": the filter \"", name, "\" is not available"));
      e = make<Filtered>(line, std::move(e), filter,
                         t_.take_symbol("(") ? read_arguments() : CallArguments());
    } else if (t_.take_name("is")) {
      e = read_test(std::move(e));
    } else if (t_.is_symbol(".") || t_.is_symbol("[") || t_.is_symbol("(")) {
      e = read_postfix(std::move(e));
    } else {
      return e;
    }
  }
}

ExpressionPtr ExpressionReader::read_test(ExpressionPtr e) {
  const int line = t_.now().line;
  const bool negated = t_.take_name("not");
  const std::string name = t_.want_any_name();
  const Test test = find_test(name);
  if (test == nullptr) fail(concat("line ", line, ": the test \"", name, "\" is not available"));
  CallArguments arguments;
  if (t_.take_symbol("(")) {
    arguments = read_arguments();
  } else {
    // One argument may stand without brackets.
    static const std::set<std::string, std::less<>> kOperators = {"else", "or",  "and", "is",
                                                                  "in",   "not", "if"};
    const Token& now = t_.now();
    const bool value = now.kind == TokenKind::kString || now.kind == TokenKind::kInteger ||
                       now.kind == TokenKind::kReal || t_.is_symbol("[") || t_.is_symbol("{") ||
                       (now.kind == TokenKind::kName && !kOperators.contains(now.text));
    if (value) arguments.positional.push_back(read_postfix(read_primary()));
  }
  return make<Tested>(line, std::move(e), test, std::move(arguments), negated);
}

Arguments CallArguments::values(Renderer& r, const ScopePtr& scope) const {
  Arguments out;
  for (const auto& e : positional) out.positional.push_back(e->value(r, scope));
  for (const auto& [name, e] : named) out.named.emplace_back(name, e->value(r, scope));
  return out;
}

}  // namespace trireme::jinja
