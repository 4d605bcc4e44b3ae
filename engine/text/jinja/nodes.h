// Nodes of a template: expressions, which have a value, and statements, which write text.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/text/jinja/value.h"

namespace trireme::jinja {

struct Limits {
  int depth = 100;            // of nested calls and blocks
  int levels = 500;           // of expressions being evaluated, in all calls together
  int64_t output = 64 << 20;  // bytes written, and bytes of any value
};

// Names and their values; lookup continues in the enclosing scopes.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> around = nullptr) : around_(std::move(around)) {}
  const Value* find(const std::string& name) const;  // nullptr: unknown
  void set(const std::string& name, Value value) { names_[name] = std::move(value); }
  // Adds the names of this scope that are looked up from now on to a set, which must outlive it.
  void record_reads(std::set<std::string>* names) { reads_ = names; }

 private:
  std::shared_ptr<Scope> around_;
  std::map<std::string, Value> names_;
  std::set<std::string>* reads_ = nullptr;
};

// State of one rendering.
struct Renderer {
  Limits limits;
  std::string out = {};
  // Byte ranges of `out` between {% generation %} tags, unless some were in captured text.
  std::vector<std::pair<size_t, size_t>> generated = {};
  bool lost_generated = false;  // some of these tags were in captured text
  int depth = 0;
  int levels = 0;
  int captures = 0;                                 // enclosing captures: output becomes a value
  std::shared_ptr<Scope> top = {};                  // outside of all loops and macros
  Value given = {};                                 // output of a block, passed to its filters
  std::vector<std::weak_ptr<Object>> objects = {};  // objects that may refer to themselves

  void step();  // counts a visited node
  void write(const std::string& text);
  // Returns the output of a block, captured instead of written.
  std::string written(const std::function<void()>& block);
  // Checks the size of a value before it is created; fails above Limits::output.
  void check_size(int64_t bytes) const;
};

using ScopePtr = std::shared_ptr<Scope>;

struct Expression {
  explicit Expression(int at) : line(at) {}
  virtual ~Expression() = default;
  // Evaluates; spends a step and enforces Limits::levels.
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
using StatementBlock = std::vector<StatementPtr>;
Flow run_block(const StatementBlock& block, Renderer& r, const ScopePtr& scope);

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  // *list, **dict; absent ones are null
  Arguments values(Renderer& r, const ScopePtr& scope) const;
};

// Target of `set`, `for` and `with`: a name, a member of a namespace, or several targets for the
// elements of the value.
struct Target {
  std::string name;
  std::string member;         // of the namespace `name`
  std::vector<Target> parts;  // several targets; `name` is then empty
  void assign(const Value& value, const ScopePtr& scope) const;
};

// Filters and tests by name; nullptr: unknown. Their first argument is the value.
using Filter = Value (*)(Renderer& r, const Value& value, const Arguments& arguments);
using Test = bool (*)(const Value& value, const Arguments& arguments);
Filter find_filter(const std::string& name);
Test find_test(const std::string& name);
// value.name: a method of a string, list or dict, or a member; undefined if there is neither.
Value attribute_of(Renderer& r, const Value& value, const std::string& name);
// value[index]; undefined if there is no such element.
Value item_of(const Value& value, const Value& index);
Value call(Renderer& r, const Value& function, Arguments arguments, int line);
// "+", "-", "*", "/", "//", "%", "**", "~"
Value calculate(Renderer& r, const std::string& operation, const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);

// Parses a template. InputError with the line if the source is invalid.
StatementBlock parse_template(std::string_view source);

}  // namespace trireme::jinja
