// What a template is made of: expressions that have a value, statements that write text.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/text/jinja/value.h"

namespace trireme::jinja {

struct Limits {
  int depth = 100;   // of nested calls and blocks
  int levels = 500;  // of expressions that wait for one another's values, in all calls together
  int64_t output = 64 << 20;  // bytes written, and of any value
};

// Names and their values; what a scope does not have, the ones around it may.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> around = nullptr) : around_(std::move(around)) {}
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value) { names_[name] = std::move(value); }
  // Adds the names of this scope that are found from now on to a set, which must outlive it.
  void record_reads(std::set<std::string>* names) { reads_ = names; }

 private:
  std::shared_ptr<Scope> around_;
  std::map<std::string, Value> names_;
  std::set<std::string>* reads_ = nullptr;
};

// One rendering.
struct Renderer {
  Limits limits;
  std::string out = {};
  // Bytes of `out` between {% generation %} tags, unless some stood in a text that was not written
  // at once.
  std::vector<std::pair<size_t, size_t>> generated = {};
  bool lost_generated = false;
  int depth = 0;
  int levels = 0;
  int captures = 0;  // around: what is written becomes a value
  std::shared_ptr<Scope> top = {};
  Value given = {};                                 // what a block is put through filters
  std::vector<std::weak_ptr<Object>> objects = {};  // which may hold themselves

  void step();  // a node is visited
  void write(const std::string& text);
  // What a block writes, instead of writing it.
  std::string written(const std::function<void()>& block);
  // A value's size, before it is made.
  void check_size(int64_t bytes) const;
};

using ScopePtr = std::shared_ptr<Scope>;

struct Expression {
  explicit Expression(int at) : line(at) {}
  virtual ~Expression() = default;
  // Pays for the node, and keeps Limits::levels.
  Value value(Renderer& r, const ScopePtr& scope) const;
  const int line;

 protected:
  virtual Value evaluate(Renderer& r, const ScopePtr& scope) const = 0;
};
using ExpressionPtr = std::unique_ptr<Expression>;

enum class Flow { kOn, kBreak, kContinue };
struct Statement {
  virtual ~Statement() = default;
  virtual Flow run(Renderer& r, const ScopePtr& scope) const = 0;
};
using StatementPtr = std::unique_ptr<Statement>;
using Block = std::vector<StatementPtr>;
Flow run_block(const Block& block, Renderer& r, const ScopePtr& scope);

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  // *list, **dict; absent ones are null
  Arguments values(Renderer& r, const ScopePtr& scope) const;
};

// What `set`, `for` and `with` give values to: a name, a member of a namespace, or several for the
// value's elements.
struct Target {
  std::string name;
  std::string member;         // of the namespace `name`
  std::vector<Target> parts;  // not empty: name is
  void assign(const Value& value, const ScopePtr& scope) const;
};

// Filters and tests by name; nullptr: there is none. A filter's and a test's first argument is the
// value.
using Filter = Value (*)(Renderer& r, const Value& value, const Arguments& arguments);
using Test = bool (*)(const Value& value, const Arguments& arguments);
Filter find_filter(const std::string& name);
Test find_test(const std::string& name);
// value.name: a method of a string, list or dict, or a member; undefined where there is neither.
Value attribute_of(Renderer& r, const Value& value, const std::string& name);
// value[index]
Value item_of(const Value& value, const Value& index);
Value call(Renderer& r, const Value& function, Arguments arguments, int line);
// "+", "-", "*", "/", "//", "%", "**", "~"
Value calculate(Renderer& r, const std::string& operation, const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);

// The block's statements. InputError with the line where the source is not understood.
Block parse_template(std::string_view source);

}  // namespace trireme::jinja
