// Parser of a template's statements.
#include <algorithm>

#include "engine/text/jinja/expressions.h"
#include "engine/text/jinja/statements.h"

namespace trireme::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : t_(read_tokens(source)), e_(t_) {}
  StatementBlock read() {
    StatementBlock block = read_block({});
    if (t_.now().kind != TokenKind::kEnd) t_.fail_here("an end tag has no start tag");
    return block;
  }

 private:
  bool at_tag(const std::vector<std::string_view>& ends) const {
    if (t_.now().kind != TokenKind::kBlock) return false;
    for (const std::string_view end : ends)
      if (t_.next().kind == TokenKind::kName && t_.next().text == end) return true;
    return false;
  }

  // Parses up to one of the tags `ends`, which becomes the next token.
  StatementBlock read_block(const std::vector<std::string_view>& ends) {
    if (++nesting_ > kMaxNesting) t_.fail_here("blocks are nested too deeply");
    StatementBlock block;
    while (t_.now().kind != TokenKind::kEnd && !at_tag(ends)) {
      if (t_.now().kind == TokenKind::kText) {
        block.push_back(std::make_unique<Text>(t_.now().text));
        t_.advance();
      } else if (t_.now().kind == TokenKind::kPrint) {
        t_.advance();
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
    if (word == "call") return read_call();
    if (word == "filter") return read_filter();
    if (word == "with") return read_with();
    if (word == "block") return read_named_block();
    if (word == "generation") {
      end_tag();
      StatementBlock body = read_block({"endgeneration"});
      closing("endgeneration");
      return std::make_unique<Generation>(std::move(body));
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(concat("line ", line, ": ", word, " outside a loop"));
      end_tag();
      return std::make_unique<Jump>(word == "break" ? Flow::kBreak : Flow::kContinue);
    }
    fail(concat("line ", line, ": the tag \"", word, "\" is not supported"));
  }

  StatementPtr read_if() {
    auto out = std::make_unique<If>();
    ExpressionPtr condition = e_.read_or_tuple();
    for (;;) {
      end_tag();
      StatementBlock block = read_block({"elif", "else", "endif"});
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

  // a, (b, c)
  Target read_target() {
    Target first = read_single_target();
    if (!t_.is_symbol(",")) return first;
    Target out;
    out.parts.push_back(std::move(first));
    while (t_.take_symbol(","))
      if (t_.is_symbol("(") || (t_.now().kind == TokenKind::kName && !t_.is_name("in")))
        out.parts.push_back(read_single_target());
    return out;
  }

  Target read_single_target() {
    if (!t_.take_symbol("(")) {
      Target target{.name = t_.want_any_name(), .member = {}, .parts = {}};
      if (t_.take_symbol(".")) target.member = t_.want_any_name();
      return target;
    }
    if (++nesting_ > kMaxNesting) t_.fail_here("names are nested too deeply");
    Target target = read_target();
    t_.want_symbol(")");
    --nesting_;
    return target;
  }

  StatementPtr read_for() {
    auto out = std::make_unique<For>();
    out->target = read_target();
    t_.want_name("in");
    out->iterable = e_.read_iterable();
    if (t_.take_name("if")) out->condition = e_.read();
    out->recursive = t_.take_name("recursive");
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
    ExpressionPtr filters = e_.read_block_filters(false);
    end_tag();
    StatementBlock block = read_block({"endset"});
    closing("endset");
    return std::make_unique<SetBlock>(std::move(target), std::move(filters), std::move(block));
  }

  void read_parameters(MacroParts& parts) {
    t_.want_symbol("(");
    while (!t_.take_symbol(")")) {
      MacroParts::Parameter p{t_.want_any_name(), nullptr};
      if (t_.take_symbol("="))
        p.fallback = e_.read();
      else if (!parts.parameters.empty() && parts.parameters.back().fallback)
        t_.fail_here("a parameter without a value follows one that has one");
      parts.parameters.push_back(std::move(p));
      if (!t_.is_symbol(")")) t_.want_symbol(",");
    }
  }

  // Parses up to and including the end tag.
  void read_body(MacroParts& parts, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const auto outside = std::exchange(e_.specials, {});
    parts.body = read_block({end});
    closing(end);
    const auto own = e_.specials;
    const auto is_parameter = [&](const char* name) {
      return std::ranges::any_of(parts.parameters, [&](const auto& p) { return p.name == name; });
    };
    parts.reads_caller = own.caller;
    parts.reads_kwargs = own.kwargs && !is_parameter("kwargs");
    parts.reads_varargs = own.varargs && !is_parameter("varargs");
    e_.specials = {.caller = outside.caller || own.caller,
                   .kwargs = outside.kwargs || own.kwargs,
                   .varargs = outside.varargs || own.varargs};
    loops_ = loops;
  }

  StatementPtr read_macro() {
    auto parts = std::make_shared<MacroParts>();
    parts->name = t_.want_any_name();
    read_parameters(*parts);
    end_tag();
    read_body(*parts, "endmacro");
    return std::make_unique<Macro>(std::move(parts));
  }

  StatementPtr read_call() {
    auto parts = std::make_shared<MacroParts>();
    parts->name = "caller";
    if (t_.is_symbol("(")) read_parameters(*parts);
    ExpressionPtr e = e_.read();
    const auto* call = dynamic_cast<const Call*>(e.get());
    if (call == nullptr) t_.fail_here("{% call %} expects the call of a macro");
    end_tag();
    read_body(*parts, "endcall");
    return std::make_unique<CallBlock>(std::move(parts), std::move(e), call);
  }

  StatementPtr read_filter() {
    ExpressionPtr filters = e_.read_block_filters(true);
    end_tag();
    StatementBlock body = read_block({"endfilter"});
    closing("endfilter");
    return std::make_unique<FilterBlock>(std::move(filters), std::move(body));
  }

  StatementPtr read_with() {
    auto out = std::make_unique<With>();
    while (t_.now().kind != TokenKind::kBlockEnd) {
      if (!out->values.empty()) t_.want_symbol(",");
      Target target = read_single_target();
      t_.want_symbol("=");
      out->values.emplace_back(std::move(target), e_.read());
    }
    end_tag();
    out->body = read_block({"endwith"});
    closing("endwith");
    return out;
  }

  StatementPtr read_named_block() {
    const std::string name = t_.want_any_name();
    if (!blocks_.insert(name).second)
      t_.fail_here(concat("the block \"", name, "\" appears twice"));
    const bool scoped = t_.take_name("scoped");
    if (t_.is_name("required")) t_.fail_here("a required block is not supported");
    end_tag();
    const int loops = std::exchange(loops_, 0);
    StatementBlock body = read_block({"endblock"});
    loops_ = loops;
    t_.want(TokenKind::kBlock, "a tag");
    t_.want_name("endblock");
    (void)t_.take_name(name);
    end_tag();
    return std::make_unique<NamedBlock>(scoped, std::move(body));
  }

  Tokens t_;
  ExpressionReader e_;
  int nesting_ = 0, loops_ = 0;
  std::set<std::string> blocks_;
};

}  // namespace

StatementBlock parse_template(std::string_view source) { return Parser(source).read(); }

}  // namespace trireme::jinja
