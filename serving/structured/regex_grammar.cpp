#include "serving/structured/regex_grammar.h"

#include <optional>

#include "engine/core/utf8.h"

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr int64_t kMaxRegexRepeats = 10'000;
const CharSet kRegexDigits = {{'0', '9'}};
const CharSet kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces = {{'\t', '\r'}, {' ', ' '}};
// White space of any dialect: none of it is in \S, nor in [^\s].
const CharSet kAnySpaces = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                            {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                            {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

int hex_value(uint32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a' + 10);
  return c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A' + 10) : -1;
}

class RegexParser {
 public:
  RegexParser(Grammar& grammar, std::string_view text, RegexUse use)
      : grammar_(grammar), use_(use) {
    for (size_t at = 0; at < text.size();) chars_.push_back(next_char(text, at));
  }

  Node parse() {
    std::vector<Node> alternatives;
    do {
      const bool begins = take('^');
      const Node body = sequence(true);
      const bool ends = take('$');
      if (at_ < chars_.size() && chars_[at_] != '|')
        fail(chars_[at_] == ')' ? "unmatched )" : "$ before the end of the expression");
      alternatives.push_back(use_ == RegexUse::kJsonString ? found(body, begins, ends) : body);
    } while (take('|'));
    return grammar_.choice(std::move(alternatives));
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    fail_input("regular expression, character ", at_ + 1, ": ", what);
  }
  bool take(char c) {
    if (at_ == chars_.size() || chars_[at_] != static_cast<uint32_t>(c)) return false;
    ++at_;
    return true;
  }
  uint32_t next() {
    if (at_ == chars_.size()) fail("unexpected end of the expression");
    return chars_[at_++];
  }
  Node one_of(const CharSet& set) {
    return use_ == RegexUse::kJsonString ? grammar_.json_chars(set) : grammar_.chars(set);
  }
  Node found(Node body, bool begins, bool ends) {
    const Node anything = grammar_.repeat(one_of({{0, kLastChar}}), 0, -1);
    std::vector<Node> parts;
    if (!begins) parts.push_back(anything);
    parts.push_back(body);
    if (!ends) parts.push_back(anything);
    return grammar_.sequence(std::move(parts));
  }

  Node choice() {
    grammar_.budget().check_depth(++depth_);
    std::vector<Node> alternatives;
    do alternatives.push_back(sequence(false));
    while (take('|'));
    --depth_;
    return grammar_.choice(std::move(alternatives));
  }

  Node sequence(bool outermost) {
    std::vector<Node> parts;
    while (at_ < chars_.size() && chars_[at_] != '|' && chars_[at_] != ')') {
      if (chars_[at_] == '$' && outermost) break;
      parts.push_back(repeated(atom()));
    }
    return grammar_.sequence(std::move(parts));
  }

  Node repeated(Node part) {
    int64_t least = 0, most = -1;
    if (take('+'))
      least = 1;
    else if (take('?'))
      most = 1;
    else if (!take('*') && !counts(least, most))
      return part;
    take('?');  // lazy
    int64_t again_min = 0, again_max = 0;
    if ((at_ < chars_.size() && (chars_[at_] == '*' || chars_[at_] == '+' || chars_[at_] == '?')) ||
        counts(again_min, again_max))
      fail("a repetition of a repetition; put the inner one into parentheses");
    return grammar_.repeat(part, least, most);
  }

  std::optional<int64_t> number() {
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < chars_.size() && chars_[at_] >= '0' && chars_[at_] <= '9'; ++at_) {
      value = value * 10 + (chars_[at_] - '0');
      if (value > kMaxRegexRepeats) fail("a number of repetitions is above 10000");
    }
    return at_ > begin ? std::optional(value) : std::nullopt;
  }
  // {n}, {n,} or {n,m}; false: the brace is a literal.
  bool counts(int64_t& least, int64_t& most) {
    const size_t begin = at_;
    if (!take('{')) return false;
    const std::optional<int64_t> first = number();
    const bool open = take(',');
    const std::optional<int64_t> last = open ? number() : first;
    // A count in Python, literal text in ECMAScript.
    if (!first && open && last && take('}'))
      fail("{,n} means different things in different dialects; write {0,n}");
    if (!first || !take('}')) {
      at_ = begin;
      return false;
    }
    least = *first;
    most = last ? *last : -1;
    if (last && most < least) fail("the minimum of a quantifier is above its maximum");
    return true;
  }

  Node atom() {
    const uint32_t c = next();
    switch (c) {
      case '(': return group();
      case '[': return one_of(char_class());
      case '.': return one_of(complement(kLineEnds));
      case '\\': return one_of(escape(false, false));
      case '^':
      case '$':
        fail(
            "^ is supported only at the start of the expression or of an alternative, "
            "$ only at the end of one");
      case '*':
      case '+':
      case '?': fail("there is nothing to repeat");
      default: return one_of({{c, c}});
    }
  }

  Node group() {
    if (take('?')) {
      if (take('P') && (at_ == chars_.size() || chars_[at_] != '<'))
        fail("this kind of group is not supported");
      if (take('<')) {
        if (at_ < chars_.size() && (chars_[at_] == '=' || chars_[at_] == '!'))
          fail("lookaround is not supported: it is not regular");
        while (next() != '>') continue;
      } else if (!take(':')) {
        fail("lookaround and flags are not supported");
      }
    }
    const Node body = choice();
    if (!take(')')) fail("unmatched (");
    return body;
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = hex_value(next());
      if (digit < 0) fail("expected a hexadecimal digit");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }
  uint32_t unicode_escape() {
    if (!take('{')) return hex(4);
    uint32_t value = 0;
    while (!take('}')) {
      value = value * 16 + hex(1);
      if (value > kLastChar) fail("no Unicode character has this number");
    }
    return value;
  }
  // After a backslash. negated: the class is a complement.
  CharSet escape(bool in_class, bool negated) {
    const uint32_t c = next();
    const auto one = [](uint32_t is) { return CharSet{{is, is}}; };
    switch (c) {
      case 'd': return kRegexDigits;
      case 'D': return complement(kRegexDigits);
      case 'w': return kWords;
      case 'W': return complement(kWords);
      case 's': return negated ? kAnySpaces : kSpaces;
      case 'S': return complement(negated ? kSpaces : kAnySpaces);
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case 'x': return one(hex(2));
      case 'u': return make_char_set(one(unicode_escape()));
      case 'b':
        if (in_class) return one('\b');
        fail("\\b (a word's boundary) is not supported");
      case '0':
        if (at_ == chars_.size() || chars_[at_] < '0' || chars_[at_] > '9') return one(0);
        break;
      default: break;
    }
    if (c >= '0' && c <= '9') fail("backreferences are not supported: they are not regular");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) fail("this escape is not supported");
    return one(c);
  }

  // After a bracket within a class: true if a POSIX class, collation or equivalence follows, as in
  // [[:alpha:]].
  bool names_class() const {
    if (at_ == chars_.size()) return false;
    const uint32_t kind = chars_[at_];
    if (kind != ':' && kind != '.' && kind != '=') return false;
    for (size_t i = at_ + 1; i + 1 < chars_.size() && chars_[i] != ']'; ++i)
      if (chars_[i] == kind && chars_[i + 1] == ']') return true;
    return false;
  }
  // After the opening bracket.
  CharSet char_class() {
    const bool negated = take('^');
    CharSet set;
    while (!take(']')) {
      const bool escaped = take('\\');
      CharSet first = escaped ? escape(true, negated) : CharSet{};
      if (!escaped) {
        const uint32_t c = next();
        if (c == '[' && names_class()) fail("[:name:] is not supported; write its characters");
        first = {{c, c}};
      }
      const bool range = at_ + 1 < chars_.size() && chars_[at_] == '-' && chars_[at_ + 1] != ']';
      if (range) {
        ++at_;
        const CharSet last = take('\\') ? escape(true, negated) : CharSet{{next(), 0}};
        if (first.size() != 1 || first[0].first != first[0].last || last.size() != 1)
          fail("expected a single character at each end of a range, got a class");
        if (last[0].first < first[0].first) fail("the bounds of a range are in the wrong order");
        if (last[0].last != 0 && last[0].last != last[0].first)
          fail("expected a single character at each end of a range, got a class");
        first[0].last = last[0].first;
      }
      set.insert(set.end(), first.begin(), first.end());
      grammar_.budget().check_time();
    }
    set = make_char_set(set);
    return negated ? complement(set) : set;
  }

  Grammar& grammar_;
  RegexUse use_;
  std::vector<uint32_t> chars_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

uint32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0};
  };
  const uint8_t first = byte(0);
  const size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (at + bytes > text.size() || find_invalid_utf8(text.substr(at, bytes)) != bytes)
    fail_input("byte ", at, " is not valid UTF-8");
  uint32_t c = bytes == 1 ? first : first & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) c = c << 6 | (byte(i) & 0x3Fu);
  at += bytes;
  return c;
}

Grammar::Node regex_grammar(Grammar& grammar, std::string_view expression, RegexUse use) {
  return RegexParser(grammar, expression, use).parse();
}

}  // namespace trireme
