// Statement nodes of a template.
#pragma once

#include <optional>

#include "engine/text/jinja/expression_nodes.h"

namespace trireme::jinja {

struct Text : Statement {
  explicit Text(std::string t) : text_(std::move(t)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const std::string text_;
};

struct Print : Statement {
  explicit Print(ExpressionPtr e) : e_(std::move(e)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const ExpressionPtr e_;
};

struct If : Statement {
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  std::vector<std::pair<ExpressionPtr, StatementBlock>> branches;  // null condition: else
};

struct For : Statement {
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  Target target;
  ExpressionPtr iterable, condition;  // condition: of the loop's "if"; null: none
  bool recursive = false;
  StatementBlock body, otherwise;

 private:
  Flow walk(List items, int64_t depth, Renderer& r, const ScopePtr& scope) const;
  std::shared_ptr<Object> loop_of(const List& items, size_t i, int64_t depth,
                                  const std::shared_ptr<std::optional<List>>& last) const;
};

struct Set : Statement {
  Set(Target t, ExpressionPtr e) : target_(std::move(t)), e_(std::move(e)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const Target target_;
  const ExpressionPtr e_;
};

// {% set name | filters %} ... {% endset %}
struct SetBlock : Statement {
  SetBlock(Target t, ExpressionPtr f, StatementBlock b)
      : target_(std::move(t)), filters_(std::move(f)), block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const Target target_;
  const ExpressionPtr filters_;
  const StatementBlock block_;
};

struct FilterBlock : Statement {
  FilterBlock(ExpressionPtr f, StatementBlock b) : filters_(std::move(f)), block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const ExpressionPtr filters_;
  const StatementBlock block_;
};

// {% with a = 1, b = 2 %}: the values are evaluated in the enclosing scope.
struct With : Statement {
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  std::vector<std::pair<Target, ExpressionPtr>> values;
  StatementBlock body;
};

// {% block name %}: written in place, since chat templates are never extended. It can read the
// names set outside of all loops and macros, or with "scoped" those of the enclosing scopes.
struct NamedBlock : Statement {
  NamedBlock(bool s, StatementBlock b) : scoped_(s), block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const bool scoped_;
  const StatementBlock block_;
};

// Marks the assistant's output: {% generation %}.
struct Generation : Statement {
  explicit Generation(StatementBlock b) : block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const StatementBlock block_;
};

struct Jump : Statement {
  explicit Jump(Flow f) : flow_(f) {}
  Flow run(Renderer& r, const ScopePtr&) const override { return r.step(), flow_; }
  const Flow flow_;
};

// Function of a template: a macro, or the body of a call block.
struct MacroParts {
  struct Parameter {
    std::string name;
    ExpressionPtr fallback;  // default value; null: none
  };
  std::string name;
  std::vector<Parameter> parameters;
  StatementBlock body;
  // Implicit arguments that the body reads.
  bool reads_caller = false, reads_kwargs = false, reads_varargs = false;
};

struct Macro : Statement {
  explicit Macro(std::shared_ptr<const MacroParts> p) : parts_(std::move(p)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const std::shared_ptr<const MacroParts> parts_;
};

// {% call(parameters) macro(arguments) %} ... {% endcall %}: the macro may call the enclosed block
// as caller().
struct CallBlock : Statement {
  CallBlock(std::shared_ptr<const MacroParts> p, ExpressionPtr e, const Call* c)
      : parts_(std::move(p)), expression_(std::move(e)), call_(c) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override;
  const std::shared_ptr<const MacroParts> parts_;
  const ExpressionPtr expression_;
  const Call* const call_;  // is *expression_
};

}  // namespace trireme::jinja
