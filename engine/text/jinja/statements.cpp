// Reading a template's statements.
#include "engine/core/error.h"
#include "engine/text/jinja/expressions.h"

namespace trireme::jinja {
namespace {

struct Text : Statement {
  explicit Text(std::string t) : text_(std::move(t)) {}
  Flow run(Renderer& r, const ScopePtr&) const override {
    r.step();
    r.write(text_);
    return Flow::kOn;
  }
  const std::string text_;
};

struct Print : Statement {
  explicit Print(ExpressionPtr e) : e_(std::move(e)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    r.write(text_of(e_->value(r, scope)));
    return Flow::kOn;
  }
  const ExpressionPtr e_;
};

struct If : Statement {
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    for (const auto& [condition, block] : branches)
      if (condition == nullptr || condition->value(r, scope).truth())
        return run_block(block, r, scope);
    return Flow::kOn;
  }
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // without a condition: else
};

// What "loop" is in the body of a for.
Value loop_of(const List& items, size_t i) {
  const auto n = static_cast<int64_t>(items.size()), at = static_cast<int64_t>(i);
  Dict loop;
  loop["index"] = at + 1;
  loop["index0"] = at;
  loop["revindex"] = n - at;
  loop["revindex0"] = n - at - 1;
  loop["first"] = i == 0;
  loop["last"] = at == n - 1;
  loop["length"] = n;
  loop["previtem"] = i > 0 ? items[i - 1] : Value(Undefined{"loop.previtem"});
  loop["nextitem"] = at + 1 < n ? items[i + 1] : Value(Undefined{"loop.nextitem"});
  loop["cycle"] = Function([at](Arguments& a) {
    if (a.positional.empty()) fail("loop.cycle has nothing to choose from");
    return a.positional[static_cast<size_t>(at % std::ssize(a.positional))];
  });
  return loop;
}

struct For : Statement {
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    List items = elements_of(iterable->value(r, scope));
    if (condition) {
      List kept;
      for (const Value& item : items) {
        const auto inner = std::make_shared<Scope>(scope);
        target.assign(item, inner);
        if (condition->value(r, inner).truth()) kept.push_back(item);
      }
      items = std::move(kept);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      r.step();
      const auto inner = std::make_shared<Scope>(scope);
      target.assign(items[i], inner);
      inner->set("loop", loop_of(items, i));
      if (run_block(body, r, inner) == Flow::kBreak) break;
    }
    return items.empty() ? run_block(otherwise, r, scope) : Flow::kOn;
  }
  Target target;
  ExpressionPtr iterable, condition;
  Block body, otherwise;
};

struct Set : Statement {
  Set(Target t, ExpressionPtr e) : target_(std::move(t)), e_(std::move(e)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    target_.assign(e_->value(r, scope), scope);
    return Flow::kOn;
  }
  const Target target_;
  const ExpressionPtr e_;
};

// What a block writes, instead of writing it.
std::string written(const Block& block, Renderer& r, const ScopePtr& scope) {
  std::string outer;
  std::swap(outer, r.out);
  (void)run_block(block, r, scope);
  std::swap(outer, r.out);
  return outer;
}

struct SetBlock : Statement {
  SetBlock(Target t, Block b) : target_(std::move(t)), block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    target_.assign(written(block_, r, std::make_shared<Scope>(scope)), scope);
    return Flow::kOn;
  }
  const Target target_;
  const Block block_;
};

struct FilterBlock : Statement {
  FilterBlock(Filter f, CallArguments a, Block b)
      : filter_(f), arguments_(std::move(a)), block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    const Value text = written(block_, r, std::make_shared<Scope>(scope));
    r.write(text_of(filter_(r, text, arguments_.values(r, scope))));
    return Flow::kOn;
  }
  const Filter filter_;
  const CallArguments arguments_;
  const Block block_;
};

// Marks what an assistant wrote: {% generation %}.
struct Generation : Statement {
  explicit Generation(Block b) : block_(std::move(b)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    const size_t begin = r.out.size();
    const Flow flow = run_block(block_, r, scope);
    if (r.out.size() > begin) r.generated.emplace_back(begin, r.out.size());
    return flow;
  }
  const Block block_;
};

struct Jump : Statement {
  explicit Jump(Flow f) : flow_(f) {}
  Flow run(Renderer& r, const ScopePtr&) const override { return r.step(), flow_; }
  const Flow flow_;
};

struct Macro : Statement {
  struct Parameter {
    std::string name;
    ExpressionPtr fallback;
  };
  struct Parts {
    std::string name;
    std::vector<Parameter> parameters;
    Block body;
  };
  explicit Macro(std::shared_ptr<const Parts> p) : parts_(std::move(p)) {}
  Flow run(Renderer& r, const ScopePtr& scope) const override {
    r.step();
    // Weak: the scope holds the macro.
    const std::weak_ptr<Scope> around = scope;
    scope->set(parts_->name, Function([parts = parts_, around, &r](Arguments& a) -> Value {
                 const ScopePtr outer = around.lock();
                 if (outer == nullptr)
                   fail(concat("the macro \"", parts->name, "\" is called outside its scope"));
                 return call_macro(*parts, r, std::make_shared<Scope>(outer), a);
               }));
    return Flow::kOn;
  }
  static Value call_macro(const Parts& parts, Renderer& r, const ScopePtr& scope, Arguments& a) {
    if (a.positional.size() > parts.parameters.size())
      fail(concat("the macro \"", parts.name, "\" takes ", parts.parameters.size(),
                  " arguments, not ", a.positional.size()));
    for (size_t i = 0; i < parts.parameters.size(); ++i) {
      const Parameter& p = parts.parameters[i];
      const Value* given = a.find(i, p.name);
      scope->set(p.name, given != nullptr ? *given
                         : p.fallback     ? p.fallback->value(r, scope)
                                          : Value(Undefined{p.name}));
    }
    return written(parts.body, r, scope);
  }
  const std::shared_ptr<const Parts> parts_;
};

class Parser {
 public:
  explicit Parser(std::string_view source) : t_(read_tokens(source)), e_(t_) {}
  Block read() {
    Block block = read_block({});
    if (t_.now().kind != TokenKind::kEnd) t_.fail_here("a block ends that has not begun");
    return block;
  }

 private:
  bool at_tag(const std::vector<std::string_view>& ends) const {
    if (t_.now().kind != TokenKind::kBlock) return false;
    for (const std::string_view end : ends)
      if (t_.next().kind == TokenKind::kName && t_.next().text == end) return true;
    return false;
  }

  // Up to one of the tags, which is the one that comes next.
  Block read_block(const std::vector<std::string_view>& ends) {
    if (++nesting_ > kMostNesting) t_.fail_here("blocks are nested too deeply");
    Block block;
    while (t_.now().kind != TokenKind::kEnd && !at_tag(ends)) {
      if (t_.now().kind == TokenKind::kText) {
        block.push_back(std::make_unique<Text>(t_.now().text));
        t_.go_on();
      } else if (t_.now().kind == TokenKind::kPrint) {
        t_.go_on();
        block.push_back(std::make_unique<Print>(e_.read_or_tuple()));
        t_.want(TokenKind::kPrintEnd, "\"}}\"");
      } else {
        t_.want(TokenKind::kBlock, "a tag");
        block.push_back(read_statement());
      }
    }
    if (!ends.empty() && t_.now().kind == TokenKind::kEnd)
      t_.fail_here(concat("{% ", ends.back(), " %} is missing"));
    --nesting_;
    return block;
  }

  void end_tag() { t_.want(TokenKind::kBlockEnd, "\"%}\""); }
  // {% word %}
  void closing(std::string_view word) {
    t_.want(TokenKind::kBlock, "a tag");
    t_.want_name(word);
    end_tag();
  }

  StatementPtr read_statement() {
    const int line = t_.now().line;
    const std::string word = t_.want_any_name();
    if (word == "if") return read_if();
    if (word == "for") return read_for();
    if (word == "set") return read_set();
    if (word == "macro") return read_macro();
    if (word == "filter") return read_filter();
    if (word == "generation") {
      end_tag();
      Block body = read_block({"endgeneration"});
      closing("endgeneration");
      return std::make_unique<Generation>(std::move(body));
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(concat("line ", line, ": ", word, " outside a loop"));
      end_tag();
      return std::make_unique<Jump>(word == "break" ? Flow::kBreak : Flow::kContinue);
    }
    fail(concat("line ", line, ": the tag \"", word, "\" is not available"));
  }

  StatementPtr read_if() {
    auto out = std::make_unique<If>();
    ExpressionPtr condition = e_.read_or_tuple();
    for (;;) {
      end_tag();
      Block block = read_block({"elif", "else", "endif"});
      const bool otherwise = condition == nullptr;
      out->branches.emplace_back(std::move(condition), std::move(block));
      t_.want(TokenKind::kBlock, "a tag");
      if (t_.take_name("endif")) break;
      if (otherwise) t_.fail_here("{% endif %} is missing");
      condition = t_.take_name("elif") ? e_.read_or_tuple() : (t_.want_name("else"), nullptr);
    }
    end_tag();
    return out;
  }

  Target read_target() {
    Target target;
    const bool bracket = t_.take_symbol("(");
    do target.names.push_back(t_.want_any_name());
    while (t_.take_symbol(",") && t_.now().kind == TokenKind::kName && !t_.is_name("in"));
    if (bracket) t_.want_symbol(")");
    if (target.names.size() == 1 && t_.take_symbol(".")) target.member = t_.want_any_name();
    return target;
  }

  StatementPtr read_for() {
    auto out = std::make_unique<For>();
    out->target = read_target();
    t_.want_name("in");
    out->iterable = e_.read_or();
    if (t_.is_symbol(",")) t_.fail_here("brackets around the list of a for are missing");
    if (t_.take_name("if")) out->condition = e_.read();
    if (t_.is_name("recursive")) t_.fail_here("a recursive for is not available");
    end_tag();
    ++loops_;
    out->body = read_block({"else", "endfor"});
    --loops_;
    t_.want(TokenKind::kBlock, "a tag");
    if (t_.take_name("else")) {
      end_tag();
      out->otherwise = read_block({"endfor"});
      t_.want(TokenKind::kBlock, "a tag");
    }
    t_.want_name("endfor");
    end_tag();
    return out;
  }

  StatementPtr read_set() {
    Target target = read_target();
    if (t_.take_symbol("=")) {
      ExpressionPtr e = e_.read_or_tuple();
      end_tag();
      return std::make_unique<Set>(std::move(target), std::move(e));
    }
    end_tag();
    Block block = read_block({"endset"});
    closing("endset");
    return std::make_unique<SetBlock>(std::move(target), std::move(block));
  }

  StatementPtr read_macro() {
    auto parts = std::make_shared<Macro::Parts>();
    parts->name = t_.want_any_name();
    t_.want_symbol("(");
    while (!t_.take_symbol(")")) {
      Macro::Parameter p{t_.want_any_name(), nullptr};
      if (t_.take_symbol("=")) p.fallback = e_.read();
      parts->parameters.push_back(std::move(p));
      if (!t_.is_symbol(")")) t_.want_symbol(",");
    }
    end_tag();
    const int loops = std::exchange(loops_, 0);
    parts->body = read_block({"endmacro"});
    loops_ = loops;
    closing("endmacro");
    return std::make_unique<Macro>(std::move(parts));
  }

  StatementPtr read_filter() {
    const std::string name = t_.want_any_name();
    const Filter filter = find_filter(name);
    if (filter == nullptr) t_.fail_here(concat("the filter \"", name, "\" is not available"));
    CallArguments arguments;
    if (t_.take_symbol("(")) arguments = e_.read_arguments();
    end_tag();
    Block body = read_block({"endfilter"});
    closing("endfilter");
    return std::make_unique<FilterBlock>(filter, std::move(arguments), std::move(body));
  }

  Tokens t_;
  ExpressionReader e_;
  int nesting_ = 0, loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(source).read(); }

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->around_.get())
    if (const auto found = scope->names_.find(name); found != scope->names_.end())
      return &found->second;
  return nullptr;
}

void Renderer::step() { spend(1); }

void Renderer::write(const std::string& text) {
  check_size(std::ssize(out) + std::ssize(text));
  out += text;
}

void Renderer::check_size(int64_t bytes) const {
  if (bytes > limits.output) fail(concat("rendering makes more than ", limits.output, " bytes"));
}

Flow run_block(const Block& block, Renderer& r, const ScopePtr& scope) {
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
  if (!member.empty()) {
    const Value* object = scope->find(names[0]);
    if (object == nullptr || object->name_space() == nullptr)
      fail(concat("\"", names[0], "\" is no namespace, so \"", names[0], ".", member,
                  "\" cannot be set"));
    object->name_space()->members[member] = value;
    return;
  }
  if (names.size() == 1) return scope->set(names[0], value);
  const List parts = elements_of(value);
  if (parts.size() != names.size())
    fail(concat(names.size(), " names are to be given ", parts.size(), " values"));
  for (size_t i = 0; i < names.size(); ++i) scope->set(names[i], parts[i]);
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
