#include "engine/text/regex_syntax.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/regex_cursor.h"
#include "engine/text/regex_literal.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

constexpr int kMaxPcreRepeat = 65535;

// Options of (?imx) in effect at a position.
struct Modes {
  bool ignore_case = false, dot_all = false, extended = false;
};

// Groups of the whole expression, known after a first pass.
struct Groups {
  int count = 0;
  std::multimap<std::string, int> names;
  bool has_names = false, has_calls = false, has_references = false;
};

// Fragment that a quantifier may follow.
struct Atom {
  std::string text;
  bool repeatable = true;
  std::u32string literal = {};  // of a (?:...) that is nothing else
};

class PatternReader {
 public:
  PatternReader(const std::string& pattern, const std::string& what, const Groups* known)
      : c_{.text = pattern, .what = what}, known_(known) {}

  std::string read_all() {
    std::string out = read_alternatives({});
    if (!c_.done()) c_.fail("a parenthesis is not opened");
    return out;
  }
  const Groups& groups() const { return seen_; }

 private:
  std::string read_alternatives(Modes modes);
  std::string read_branch(Modes modes);
  Atom read_atom(const Modes& modes);
  Atom read_escape(const Modes& modes);
  Atom read_group(const Modes& modes);
  Atom read_extended_group(const Modes& modes);
  Atom read_options(Modes modes);
  Atom read_condition(const Modes& modes);
  Atom read_look(const char* opening, bool behind, const Modes& modes);
  Atom capture(const std::string& name, const Modes& modes);
  std::string body(Modes modes);
  Atom reference(int number, const Modes& modes);
  Atom named_reference(const Modes& modes);
  Atom call();
  int group_of(const std::string& name, const char* kind);
  bool skip_ignored(const Modes& modes);
  bool read_literal(std::u32string& out);
  bool read_quantifier(std::string& out);
  bool read_interval(std::string& out);

  PatternCursor c_;
  const Groups* known_;  // nullptr: first pass
  Groups seen_;
  bool in_look_behind_ = false;
  std::u32string plain_;  // the last fragment, if it is only literal text
};

// A single character is not wrapped: PCRE2 repeats it faster than a group. Any other fragment
// starts with a parenthesis, or has a quantifier already.
std::string repeated_atom(const std::string& text, const std::string& quantifier, bool again) {
  const bool is_character = !again && !text.empty() && text[0] != '(';
  return is_character ? text + quantifier : concat("(?:", text, ')', quantifier);
}

// Whether digits are a group number: below 10, or a group seen before; otherwise they are octal.
bool is_reference(std::string_view text, int groups) {
  size_t length = 0;
  int number = 0;
  while (length < text.size() && length < 5 && text[length] >= '0' && text[length] <= '9')
    number = number * 10 + (text[length++] - '0');
  return length > 0 && text[0] != '0' && (length == 1 || number <= groups || text[0] > '7');
}

std::string PatternReader::read_alternatives(Modes modes) {
  if (++c_.depth > kMaxPatternDepth) c_.refuse("nesting this deep");
  std::string out = read_branch(modes);
  while (c_.take("|")) {
    out += concat('|', read_branch(modes));
    plain_.clear();
  }
  --c_.depth;
  return out;
}

std::string PatternReader::read_branch(Modes modes) {
  std::string out;
  std::u32string literal;
  const auto flush = [&] {
    if (!literal.empty()) out += literal_fragment(literal, modes.ignore_case, !in_look_behind_, c_);
    literal.clear();
  };
  while (true) {
    while (skip_ignored(modes)) {
    }
    if (c_.done() || c_.peek() == '|' || c_.peek() == ')') break;
    Atom atom;
    std::u32string characters;
    const bool is_literal = read_literal(characters);
    if (!is_literal) atom = read_atom(modes);
    while (skip_ignored(modes)) {
    }
    std::string quantifier;
    if (!read_quantifier(quantifier)) {
      literal += is_literal ? characters : atom.literal;
      if (is_literal || !atom.literal.empty()) continue;
      flush();
      out += atom.text;
      continue;
    }
    if (is_literal) {  // the quantifier repeats only the last character
      const char32_t last = characters.back();
      characters.pop_back();
      literal += characters;
      atom.text = literal_fragment({last}, modes.ignore_case, !in_look_behind_, c_);
    }
    flush();
    if (!atom.repeatable) c_.fail("a quantifier has nothing to repeat");
    bool again = false;
    do {
      atom.text = repeated_atom(atom.text, quantifier, std::exchange(again, true));
      while (skip_ignored(modes)) {
      }
    } while (read_quantifier(quantifier));
    out += atom.text;
  }
  plain_ = out.empty() ? literal : std::u32string();
  flush();
  return out;
}

// Skips white space and comments of (?x), and (?#...).
bool PatternReader::skip_ignored(const Modes& modes) {
  if (c_.take("(?#")) {
    while (c_.peek() != ')') {
      if (c_.done()) c_.fail("a comment has no end");
      if (c_.peek() == '\\') ++c_.at;
      c_.at = std::min(c_.at + 1, c_.text.size());
    }
    ++c_.at;
    return true;
  }
  if (!modes.extended || c_.done()) return false;
  if (c_.peek() == '#') {
    while (!c_.done() && c_.peek() != '\n') ++c_.at;
    return true;
  }
  size_t next = c_.at;
  if (!is_white_space(next_character(c_.text, next))) return false;
  c_.at = next;
  return true;
}

bool PatternReader::read_literal(std::u32string& out) {
  const char c = c_.peek();
  if (c == '\\') {
    const char next = c_.peek(1);
    if (c_.at + 1 >= c_.text.size()) c_.fail("it ends with a backslash");
    if (is_reference(c_.text.substr(c_.at + 1), seen_.count) ||
        std::string_view("wWdDsShHpPbBAzZGKRXNOyYkg").find(next) != std::string_view::npos)
      return false;
    ++c_.at;
    if (!read_code_escape(c_, false, out)) out += c_.take_character();
    return true;
  }
  if (std::string_view(".^$[(*+?").find(c) != std::string_view::npos) return false;
  if (std::string interval; c == '{' && read_interval(interval))
    c_.fail("a quantifier has nothing to repeat");
  out += c_.take_character();
  return true;
}

Atom PatternReader::read_atom(const Modes& modes) {
  if (c_.take("\\")) return read_escape(modes);
  if (c_.take(".")) return {modes.dot_all ? "(?s:.)" : "\\N"};
  if (c_.take("^")) return {"(?m:^)", false};
  if (c_.take("$")) return {"(?m:$)", false};
  if (c_.take("[")) {
    const CharacterSet set = read_class(c_);
    return {modes.ignore_case ? folded_class_fragment(set, !in_look_behind_) : class_fragment(set)};
  }
  if (c_.take("(")) return read_group(modes);
  c_.fail("a quantifier has nothing to repeat");
}

Atom PatternReader::read_escape(const Modes& modes) {
  CharacterSet set;
  if (read_set_escape(c_, false, set)) return {class_fragment(set)};
  if (c_.peek() >= '1' && c_.peek() <= '9') return reference(c_.take_number(), modes);
  const char letter = c_.text[c_.at++];
  const std::string word = class_fragment(property_set("word", false, c_.what));
  switch (letter) {
    case 'b':
      return {concat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))"), false};
    case 'B':
      return {concat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))"), false};
    case 'A':
    case 'z':
    case 'Z':
    case 'G': return {concat('\\', letter), false};
    case 'K': return {"\\K", false};
    case 'R': return {"(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])"};
    case 'N': return {"\\N"};
    case 'O': return {"(?s:.)"};
    case 'k': return named_reference(modes);
    case 'g': return call();
    default: c_.refuse(concat('\\', letter, " (text segments)"));
  }
}

Atom PatternReader::reference(int number, const Modes& modes) {
  seen_.has_references = true;
  if (known_ == nullptr) return {"(?:)"};
  if (known_->has_names) c_.fail("a group is referenced by its number where groups have names");
  if (number > known_->count) c_.fail(concat("there is no group ", number));
  return {concat(modes.ignore_case ? "(?i:" : "(?:", "\\g{", number, "})")};
}

// Number of a group given by its name or by "1", "-1" and "+1".
int PatternReader::group_of(const std::string& name, const char* kind) {
  const size_t digits = name.find_first_not_of("0123456789", name.find_first_of("+-") == 0 ? 1 : 0);
  if (name.empty() || name.find_first_of("+-", 1) != std::string::npos)
    c_.refuse(concat(kind, " with a recursion level"));
  if (digits == std::string::npos) {
    const int given = name.size() > 6 ? 999999 : std::stoi(name);
    const int number = name[0] == '-'   ? seen_.count + 1 + given
                       : name[0] == '+' ? seen_.count + given
                                        : given;
    if (known_ == nullptr) return 0;
    if (known_->has_names && number != 0)
      c_.fail("a group is referenced by its number where groups have names");
    if (number < 0 || number > known_->count) c_.fail(concat("there is no group ", name));
    return number;
  }
  if (known_ == nullptr) return 0;
  const auto count = known_->names.count(name);
  if (count == 0) c_.fail(concat("there is no group \"", name, '"'));
  if (count > 1) c_.refuse(concat(kind, " of a name that several groups have"));
  return known_->names.find(name)->second;
}

Atom PatternReader::named_reference(const Modes& modes) {
  const char open = c_.peek();
  if (open != '<' && open != '\'') return {"k"};
  ++c_.at;
  seen_.has_references = true;
  const int number = group_of(c_.take_until(open == '<' ? '>' : '\''), "a reference");
  return {concat(modes.ignore_case ? "(?i:" : "(?:", "\\g{", number, "})")};
}

Atom PatternReader::call() {
  const char open = c_.peek();
  if (open != '<' && open != '\'') return {"g"};
  ++c_.at;
  seen_.has_calls = true;
  const int number = group_of(c_.take_until(open == '<' ? '>' : '\''), "a call");
  // PCRE2 restores groups after a call, Oniguruma keeps the values set by the call.
  if (known_ != nullptr && known_->has_references)
    c_.refuse("\\g<...> (a call) beside a backreference");
  return {concat("(?", number, ')')};
}

std::string PatternReader::body(Modes modes) {
  std::string out = read_alternatives(modes);
  if (!c_.take(")")) c_.fail("a parenthesis is not closed");
  return out;
}

Atom PatternReader::capture(const std::string& name, const Modes& modes) {
  if (!name.empty()) seen_.has_names = true;
  // If there are named groups, unnamed ones do not capture.
  if (name.empty() && known_ != nullptr && known_->has_names)
    return {concat("(?:", body(modes), ')')};
  const int number = ++seen_.count;
  if (!name.empty()) seen_.names.emplace(name, number);
  return {concat('(', body(modes), ')')};
}

Atom PatternReader::read_look(const char* opening, bool behind, const Modes& modes) {
  const bool outer = std::exchange(in_look_behind_, in_look_behind_ || behind);
  std::string inner = body(modes);
  in_look_behind_ = outer;
  return {concat('(', opening, inner, ')'), false};
}

Atom PatternReader::read_group(const Modes& modes) {
  if (c_.peek() == '*') c_.refuse("(*...) (a callout)");
  if (!c_.take("?")) return capture("", modes);
  if (c_.take(":")) {
    Atom group{concat("(?:", body(modes), ')')};
    group.literal = std::exchange(plain_, {});  // "s(?:s)" is "ss" if case is ignored
    return group;
  }
  if (c_.take(">")) return {concat("(?>", body(modes), ')')};
  if (c_.take("=")) return read_look("?=", false, modes);
  if (c_.take("!")) return read_look("?!", false, modes);
  if (c_.take("<=")) return read_look("?<=", true, modes);
  if (c_.take("<!")) return read_look("?<!", true, modes);
  if (c_.take("<")) return capture(c_.take_until('>'), modes);
  if (c_.take("'")) return capture(c_.take_until('\''), modes);
  return read_extended_group(modes);
}

Atom PatternReader::read_extended_group(const Modes& modes) {
  if (c_.peek() == '~') c_.refuse("(?~...) (an absent operator)");
  if (c_.peek() == '{') c_.refuse("(?{...}) (a callout)");
  if (c_.take("(")) return read_condition(modes);
  return read_options(modes);
}

Atom PatternReader::read_options(Modes modes) {
  bool on = true;
  while (true) {
    const char letter = c_.peek();
    if (c_.done()) c_.fail("a parenthesis is not closed");
    ++c_.at;
    if (letter == ':') return {concat("(?:", body(modes), ')')};
    // In effect to the end of the group, including its alternatives: a(?i)b|c is a(?i:b|c).
    if (letter == ')') return {concat("(?:", read_alternatives(modes), ')'), false};
    if (letter == '-')
      on = false;
    else if (letter == 'i')
      modes.ignore_case = on;
    else if (letter == 'm')
      modes.dot_all = on;
    else if (letter == 'x')
      modes.extended = on;
    else if (std::string_view("WDSPyCIL").find(letter) != std::string_view::npos)
      c_.refuse(concat("the option (?", letter, ')'));
    else
      c_.fail(concat("the option (?", letter, ") is unknown"));
  }
}

// (?(1)yes|no) and (?(<name>)yes|no), after the second parenthesis.
Atom PatternReader::read_condition(const Modes& modes) {
  const char open = c_.peek();
  const bool named = open == '<' || open == '\'';
  if (!named && open != '+' && open != '-' && (open < '0' || open > '9'))
    c_.refuse("(?(...)...) with a condition other than a group");
  if (named) ++c_.at;
  const std::string name = c_.take_until(named ? (open == '<' ? '>' : '\'') : ')');
  if (named && !c_.take(")")) c_.fail("a condition has no end");
  const int number = group_of(name, "a condition");
  seen_.has_references = true;
  if (++c_.depth > kMaxPatternDepth) c_.refuse("nesting this deep");
  std::string yes = read_branch(modes), no;
  const bool empty = yes.empty() && c_.peek() == ')';  // only checks the group
  if (c_.take("|")) no = read_alternatives(modes);
  --c_.depth;
  if (!c_.take(")")) c_.fail("a parenthesis is not closed");
  if (known_ == nullptr) return {"(?:)"};
  return {concat("(?:(?(", number, ")(?:", yes, ")|(?:", empty ? "(?!)" : no, ")))")};
}

bool PatternReader::read_quantifier(std::string& out) {
  const char c = c_.peek();
  if (c == '{') return read_interval(out);
  if (c_.done() || (c != '*' && c != '+' && c != '?')) return false;
  ++c_.at;
  out = c;
  if (c_.take("?"))
    out += '?';
  else if (c_.take("+"))
    out += '+';
  return true;
}

bool PatternReader::read_interval(std::string& out) {
  const size_t begin = c_.at++;
  const int least = c_.take_number();
  int most = least;
  const bool is_range = c_.take(",");
  if (is_range) most = c_.take_number();
  if ((least < 0 && most < 0) || !c_.take("}")) {
    c_.at = begin;
    return false;
  }
  if (std::max(least, most) > kMaxPcreRepeat) c_.refuse(concat("a count above ", kMaxPcreRepeat));
  if (most >= 0 && least > most) {  // {3,1} is a possessive {1,3}
    out = concat('{', most, ',', least, "}+");
    return true;
  }
  out = concat('{', std::max(least, 0));
  if (is_range) out += most < 0 ? "," : concat(',', most);
  out += '}';
  // {n} has no lazy form, and no interval a possessive one.
  if (is_range && c_.take("?")) out += '?';
  return true;
}

}  // namespace

std::string translated_regex(const std::string& pattern, const std::string& what) {
  if (find_invalid_utf8(pattern) != pattern.size())
    fail_input(what, ": a regular expression is not UTF-8");
  // Names decide which groups capture, so group numbers are known only in a second pass.
  Groups groups;
  std::string out;
  for (const Groups* known :
       {static_cast<const Groups*>(nullptr), &std::as_const(groups), &std::as_const(groups)}) {
    PatternReader reader(pattern, what, known);
    out = reader.read_all();
    groups = reader.groups();
  }
  return out;
}

}  // namespace trireme
