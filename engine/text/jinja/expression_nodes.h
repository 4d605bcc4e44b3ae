// Expression nodes of a template.
#pragma once

#include <climits>
#include <utility>

#include "engine/core/error.h"
#include "engine/text/jinja/arguments.h"
#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

struct Constant : Expression {
  Constant(int at, Value v) : Expression(at), v_(std::move(v)) {}
  Value evaluate(Renderer&, const ScopePtr&) const override { return v_; }
  const Value v_;
};

struct Name : Expression {
  Name(int at, std::string n) : Expression(at), name_(std::move(n)) {}
  Value evaluate(Renderer&, const ScopePtr& scope) const override {
    const Value* found = scope->find(name_);
    return found != nullptr ? *found : Value(Undefined{name_});
  }
  const std::string name_;
};

struct ListOf : Expression {
  ListOf(int at, std::vector<ExpressionPtr> items, bool is_tuple)
      : Expression(at), items_(std::move(items)), is_tuple_(is_tuple) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    List list;
    for (const auto& item : items_) list.push_back(item->value(r, scope));
    return is_tuple_ ? tuple_of(std::move(list)) : Value(std::move(list));
  }
  const std::vector<ExpressionPtr> items_;
  const bool is_tuple_;
};

struct DictOf : Expression {
  using Items = std::vector<std::pair<ExpressionPtr, ExpressionPtr>>;
  DictOf(int at, Items items) : Expression(at), items_(std::move(items)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    Dict dict;
    for (const auto& [key, item] : items_) {
      const Value k = key->value(r, scope);
      if (k.string() == nullptr)
        fail(concat("line ", line, ": a key of a dict must be a string, got a ", type_name(k)));
      dict[*k.string()] = item->value(r, scope);
    }
    return dict;
  }
  const Items items_;
};

struct Attribute : Expression {
  Attribute(int at, ExpressionPtr of, std::string n)
      : Expression(at), of_(std::move(of)), name_(std::move(n)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
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
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    const Value v = of_->value(r, scope);
    if (v.is_undefined())
      fail(concat("line ", line, ": \"", v.undefined_name(),
                  "\" is undefined, so it has no elements"));
    const Value index = index_->value(r, scope);
    Value found = item_of(v, index);
    // A name that is not a key may be a method.
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
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    const auto bound = [&](const ExpressionPtr& e, int64_t absent) {
      if (e == nullptr) return absent;
      const Value v = e->value(r, scope);
      int64_t i = 0;
      if (v.is_none()) return absent;
      if (!v.to_integer(i))
        fail(concat("line ", line, ": a bound of a slice must be a whole number, got a ",
                    type_name(v)));
      return std::max(i, INT64_MIN / 4);
    };
    const Value v = of_->value(r, scope);
    const int64_t begin = bound(begin_, INT64_MIN), end = bound(end_, INT64_MIN),
                  step = bound(step_, 1);
    if (v.string()) return slice_of(*v.string(), begin, end, step);
    if (v.tuple()) return tuple_of(slice_of(*v.list(), begin, end, step));
    if (v.list()) return slice_of(*v.list(), begin, end, step);
    fail(concat("line ", line, ": a ", type_name(v), " cannot be sliced"));
  }
  const ExpressionPtr of_, begin_, end_, step_;
};

struct Call : Expression {
  Call(int at, ExpressionPtr f, CallArguments a)
      : Expression(at), function_(std::move(f)), arguments_(std::move(a)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    const Value f = function_->value(r, scope);
    return call(r, f, arguments_.values(r, scope), line);
  }
  // Calls with the body of a call block as caller.
  Value value_with(const Value& caller, Renderer& r, const ScopePtr& scope) const {
    r.step();
    const Value f = function_->value(r, scope);
    Arguments arguments = arguments_.values(r, scope);
    arguments.named.emplace_back("caller", caller);
    return call(r, f, std::move(arguments), line);
  }
  const ExpressionPtr function_;
  const CallArguments arguments_;
};

// Output of a block, as the input of its filters.
struct Given : Expression {
  using Expression::Expression;
  Value evaluate(Renderer& r, const ScopePtr&) const override {
    return std::exchange(r.given, Value());
  }
};

// Unknown filters and tests fail only when evaluated, as in Jinja: a template may have them in code
// that it never runs.
struct Filtered : Expression {
  Filtered(int at, ExpressionPtr of, std::string n, CallArguments a)
      : Expression(at),
        of_(std::move(of)),
        name_(std::move(n)),
        filter_(find_filter(name_)),
        arguments_(std::move(a)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    if (filter_ == nullptr)
      fail(concat("line ", line, ": the filter \"", name_, "\" is not supported"));
    const Value v = of_->value(r, scope);
    const Arguments given = arguments_.values(r, scope);
    check_filter_arguments(name_, given);
    return filter_(r, v, given);
  }
  const ExpressionPtr of_;
  const std::string name_;
  const Filter filter_;
  const CallArguments arguments_;
};

struct Tested : Expression {
  Tested(int at, ExpressionPtr of, std::string n, CallArguments a, bool negated)
      : Expression(at),
        of_(std::move(of)),
        name_(std::move(n)),
        test_(find_test(name_)),
        arguments_(std::move(a)),
        negated_(negated) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    if (test_ == nullptr)
      fail(concat("line ", line, ": the test \"", name_, "\" is not supported"));
    const Value v = of_->value(r, scope);
    return test_(v, arguments_.values(r, scope)) != negated_;
  }
  const ExpressionPtr of_;
  const std::string name_;
  const Test test_;
  const CallArguments arguments_;
  const bool negated_;
};

struct Condition : Expression {
  Condition(int at, ExpressionPtr yes, ExpressionPtr c, ExpressionPtr no)
      : Expression(at), yes_(std::move(yes)), condition_(std::move(c)), no_(std::move(no)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    if (condition_->value(r, scope).truth()) return yes_->value(r, scope);
    return no_ ? no_->value(r, scope) : Value(Undefined{"the else of a condition"});
  }
  const ExpressionPtr yes_, condition_, no_;
};

struct Logical : Expression {
  Logical(int at, ExpressionPtr a, ExpressionPtr b, bool is_and)
      : Expression(at), a_(std::move(a)), b_(std::move(b)), and_(is_and) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    const Value first = a_->value(r, scope);
    return first.truth() == and_ ? b_->value(r, scope) : first;
  }
  const ExpressionPtr a_, b_;
  const bool and_;
};

struct Not : Expression {
  Not(int at, ExpressionPtr e) : Expression(at), e_(std::move(e)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    return !e_->value(r, scope).truth();
  }
  const ExpressionPtr e_;
};

struct Comparison : Expression {
  using Links = std::vector<std::pair<std::string, ExpressionPtr>>;
  Comparison(int at, ExpressionPtr first, Links links)
      : Expression(at), first_(std::move(first)), links_(std::move(links)) {}
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
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
  Value evaluate(Renderer& r, const ScopePtr& scope) const override {
    const Value a = a_->value(r, scope), b = b_->value(r, scope);
    return calculate(r, operation_, a, b);
  }
  const std::string operation_;
  const ExpressionPtr a_, b_;
};

}  // namespace trireme::jinja
