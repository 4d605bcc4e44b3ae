// Macros and call blocks.
#include "engine/text/jinja/statements.h"

namespace trireme::jinja {
namespace {

// Takes an argument by name.
const Value* taken(Arguments& a, std::vector<bool>& used, const std::string& name) {
  spend(std::ssize(a.named) / 16);
  for (size_t i = 0; i < a.named.size(); ++i) {
    if (used[i] || a.named[i].first != name) continue;
    used[i] = true;
    return &a.named[i].second;
  }
  return nullptr;
}

// Sets the implicit arguments that the body reads, like jinja2.runtime.Macro.
void set_specials(const MacroParts& parts, Arguments& a, std::vector<bool>& used, bool has_caller,
                  Scope& scope) {
  if (parts.reads_caller && !has_caller) {
    const Value* caller = taken(a, used, "caller");
    scope.set("caller", caller != nullptr ? *caller : Value(Undefined{"caller"}));
  }
  Dict more;
  for (size_t i = 0; i < a.named.size(); ++i) {
    if (used[i]) continue;
    if (!parts.reads_kwargs)
      fail(concat("the macro \"", parts.name, "\" takes no argument \"", a.named[i].first, "\""));
    more[a.named[i].first] = a.named[i].second;
  }
  if (parts.reads_kwargs) scope.set("kwargs", more);
  const size_t own = std::min(a.positional.size(), parts.parameters.size());
  if (parts.reads_varargs)
    scope.set("varargs",
              tuple_of(List(a.positional.begin() + static_cast<int64_t>(own), a.positional.end())));
  else if (own < a.positional.size())
    fail(concat("the macro \"", parts.name, "\" takes ", own, " arguments, not ",
                a.positional.size()));
}

Value call_macro(const MacroParts& parts, Renderer& r, const ScopePtr& scope, Arguments& a) {
  std::vector<bool> used(a.named.size());
  spend(std::ssize(a.named) + std::ssize(a.positional));
  bool has_caller = false;
  std::vector<const MacroParts::Parameter*> absent;
  for (size_t i = 0; i < parts.parameters.size(); ++i) {
    const MacroParts::Parameter& p = parts.parameters[i];
    has_caller |= p.name == "caller";
    const Value* given = i < a.positional.size() ? &a.positional[i] : taken(a, used, p.name);
    if (given != nullptr)
      scope->set(p.name, *given);
    else
      absent.push_back(&p);
  }
  set_specials(parts, a, used, has_caller, *scope);
  for (const MacroParts::Parameter* p : absent)
    scope->set(p->name, p->fallback ? p->fallback->value(r, scope) : Value(Undefined{p->name}));
  return r.written([&] { (void)run_block(parts.body, r, scope); });
}

Value macro_of(const std::shared_ptr<const MacroParts>& parts, Renderer& r, const ScopePtr& scope) {
  const auto macro = held(Object{.kind = "macro"});
  // Weak: the scope owns the macro.
  const std::weak_ptr<Scope> around = scope;
  macro->call = [parts, around, &r](Arguments& a) -> Value {
    const ScopePtr outer = around.lock();
    if (outer == nullptr)
      fail(concat("the macro \"", parts->name, "\" is called outside its scope"));
    return call_macro(*parts, r, std::make_shared<Scope>(outer), a);
  };
  List names;
  for (const MacroParts::Parameter& p : parts->parameters) names.emplace_back(p.name);
  spend(1 + std::ssize(names));
  macro->members["name"] = parts->name;
  macro->members["arguments"] = tuple_of(std::move(names));
  macro->members["caller"] = parts->reads_caller;
  macro->members["catch_kwargs"] = parts->reads_kwargs;
  macro->members["catch_varargs"] = parts->reads_varargs;
  return macro;
}

}  // namespace

Flow Macro::run(Renderer& r, const ScopePtr& scope) const {
  r.step();
  scope->set(parts_->name, macro_of(parts_, r, scope));
  return Flow::kOn;
}

Flow CallBlock::run(Renderer& r, const ScopePtr& scope) const {
  r.step();
  const auto inner = std::make_shared<Scope>(scope);
  r.write(text_of(call_->value_with(macro_of(parts_, r, inner), r, scope)));
  return Flow::kOn;
}

}  // namespace trireme::jinja
