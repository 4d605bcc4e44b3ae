#include "engine/text/jinja/statements.h"

#include "engine/core/error.h"

namespace trireme::jinja {
namespace {

Value undefined(const char* name) { return Undefined{name}; }

// Output of a block after its filters.
std::string filtered(const ExpressionPtr& filters, std::string text, Renderer& r,
                     const ScopePtr& scope) {
  if (filters == nullptr) return text;
  r.given = std::move(text);
  return text_of(filters->value(r, scope));
}

}  // namespace

Flow Text::run(Renderer& r, const ScopePtr&) const {
  r.step();
  r.write(text_);
  return Flow::kOn;
}

Flow Print::run(Renderer& r, const ScopePtr& scope) const {
  r.write(text_of(e_->value(r, scope)));
  return Flow::kOn;
}

Flow If::run(Renderer& r, const ScopePtr& scope) const {
  for (const auto& [condition, block] : branches)
    if (condition == nullptr || condition->value(r, scope).truth())
      return run_block(block, r, scope);
  return Flow::kOn;
}

// Object "loop" of the body. last: arguments of the previous changed() call.
std::shared_ptr<Object> For::loop_of(const List& items, size_t i, int64_t depth,
                                     const std::shared_ptr<std::optional<List>>& last) const {
  const auto n = std::ssize(items), at = static_cast<int64_t>(i);
  auto loop = held(Object{.kind = "loop"});
  Dict& members = loop->members;
  members["index"] = at + 1;
  members["index0"] = at;
  members["revindex"] = n - at;
  members["revindex0"] = n - at - 1;
  members["first"] = i == 0;
  members["last"] = at == n - 1;
  members["length"] = int64_t{n};
  members["depth"] = depth + 1;
  members["depth0"] = depth;
  members["previtem"] = i > 0 ? items[i - 1] : undefined("loop.previtem");
  members["nextitem"] = at + 1 < n ? items[i + 1] : undefined("loop.nextitem");
  members["cycle"] = Function([at](Arguments& a) {
    if (a.positional.empty()) fail("loop.cycle expects values to choose from");
    return a.positional[static_cast<size_t>(at % std::ssize(a.positional))];
  });
  members["changed"] = Function([last](Arguments& a) -> Value {
    if (last->has_value() && equal(**last, a.positional)) return false;
    *last = a.positional;
    return true;
  });
  return loop;
}

Flow For::walk(List items, int64_t depth, Renderer& r, const ScopePtr& scope) const {
  if (condition) {
    List kept;
    for (const Value& item : items) {
      const auto inner = std::make_shared<Scope>(scope);
      target.assign(item, inner);
      if (condition->value(r, inner).truth()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  const auto last = std::make_shared<std::optional<List>>();
  for (size_t i = 0; i < items.size(); ++i) {
    r.step();
    const auto inner = std::make_shared<Scope>(scope);
    target.assign(items[i], inner);
    const auto loop = loop_of(items, i, depth, last);
    if (recursive)
      loop->call = [this, depth, &r, around = std::weak_ptr<Scope>(scope)](Arguments& a) -> Value {
        const ScopePtr outer = around.lock();
        if (outer == nullptr || a.positional.size() != 1)
          fail("loop() expects the value to iterate over");
        return r.written([&] { (void)walk(elements_of(a.positional[0]), depth + 1, r, outer); });
      };
    inner->set("loop", loop);
    if (run_block(body, r, inner) == Flow::kBreak) break;
  }
  return items.empty() ? run_block(otherwise, r, std::make_shared<Scope>(scope)) : Flow::kOn;
}

Flow For::run(Renderer& r, const ScopePtr& scope) const {
  return walk(elements_of(iterable->value(r, scope)), 0, r, scope);
}

Flow Set::run(Renderer& r, const ScopePtr& scope) const {
  target_.assign(e_->value(r, scope), scope);
  return Flow::kOn;
}

Flow SetBlock::run(Renderer& r, const ScopePtr& scope) const {
  const auto inner = std::make_shared<Scope>(scope);
  Flow flow = Flow::kOn;
  std::string text = r.written([&] { flow = run_block(block_, r, inner); });
  if (flow != Flow::kOn) return flow;
  target_.assign(filtered(filters_, std::move(text), r, scope), scope);
  return Flow::kOn;
}

Flow FilterBlock::run(Renderer& r, const ScopePtr& scope) const {
  const auto inner = std::make_shared<Scope>(scope);
  Flow flow = Flow::kOn;
  std::string text = r.written([&] { flow = run_block(block_, r, inner); });
  if (flow != Flow::kOn) return flow;
  r.write(filtered(filters_, std::move(text), r, inner));
  return Flow::kOn;
}

Flow With::run(Renderer& r, const ScopePtr& scope) const {
  r.step();
  const auto inner = std::make_shared<Scope>(scope);
  for (const auto& [target, e] : values) target.assign(e->value(r, scope), inner);
  return run_block(body, r, inner);
}

Flow NamedBlock::run(Renderer& r, const ScopePtr& scope) const {
  r.step();
  return run_block(block_, r, std::make_shared<Scope>(scoped_ ? scope : r.top));
}

Flow Generation::run(Renderer& r, const ScopePtr& scope) const {
  const size_t begin = r.out.size();
  const Flow flow = run_block(block_, r, std::make_shared<Scope>(scope));
  if (r.captures > 0)
    r.lost_generated |= r.out.size() > begin;
  else if (r.out.size() > begin)
    r.generated.emplace_back(begin, r.out.size());
  return flow;
}

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->around_.get())
    if (const auto found = scope->names_.find(name); found != scope->names_.end()) {
      if (scope->reads_ != nullptr) scope->reads_->insert(name);
      return &found->second;
    }
  return nullptr;
}

void Renderer::step() { spend(1); }

namespace {
// A separate function, since its locals would take stack space at every level.
[[noreturn, gnu::noinline]] void fail_levels(int line, int most) {
  fail(concat("line ", line, ": expressions are nested deeper than ", most,
              ", including those of the enclosing calls"));
}
}  // namespace

Value Expression::value(Renderer& r, const ScopePtr& scope) const {
  r.step();
  if (++r.levels > r.limits.levels) fail_levels(line, r.limits.levels);
  Value v = evaluate(r, scope);
  --r.levels;
  return v;
}

std::string Renderer::written(const std::function<void()>& block) {
  std::string outer;
  std::swap(outer, out);
  ++captures;
  block();
  --captures;
  std::swap(outer, out);
  return outer;
}

void Renderer::write(const std::string& text) {
  check_size(std::ssize(out) + std::ssize(text));
  out += text;
}

void Renderer::check_size(int64_t bytes) const {
  if (bytes > limits.output) fail(concat("rendering produces more than ", limits.output, " bytes"));
}

Flow run_block(const StatementBlock& block, Renderer& r, const ScopePtr& scope) {
  if (++r.depth > r.limits.depth)
    fail(concat("calls and blocks are nested deeper than ", r.limits.depth));
  Flow flow = Flow::kOn;
  for (const StatementPtr& statement : block) {
    flow = statement->run(r, scope);
    if (flow != Flow::kOn) break;
  }
  --r.depth;
  return flow;
}

void Target::assign(const Value& value, const ScopePtr& scope) const {
  if (!parts.empty()) {
    const List values = elements_of(value);
    if (values.size() != parts.size())
      fail(concat(parts.size(), " names are assigned ", values.size(), " values"));
    for (size_t i = 0; i < parts.size(); ++i) parts[i].assign(values[i], scope);
    return;
  }
  if (member.empty()) return scope->set(name, value);
  const Value* found = scope->find(name);
  if (found == nullptr || found->object() == nullptr || !found->object()->can_be_set)
    fail(concat("\"", name, "\" is not a namespace, so \"", name, ".", member, "\" cannot be set"));
  found->object()->members[member] = value;
}

Value call(Renderer& r, const Value& function, Arguments arguments, int line) {
  if (function.is_undefined())
    fail(concat("line ", line, ": \"", function.undefined_name(),
                "\" is undefined, so it cannot be called"));
  if (function.function() == nullptr)
    fail(concat("line ", line, ": a ", type_name(function), " cannot be called"));
  if (++r.depth > r.limits.depth)
    fail(concat("calls and blocks are nested deeper than ", r.limits.depth));
  const Function f = *function.function();
  Value result = f(arguments);
  --r.depth;
  return result;
}

}  // namespace trireme::jinja
