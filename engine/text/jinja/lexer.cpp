#include "engine/text/jinja/lexer.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/text/jinja/value.h"

namespace trireme::jinja {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Source with "\n" as line ends, and without the last one.
std::string plain_lines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(plain_lines(source)) {}

  std::vector<Token> read() {
    while (at_ < s_.size()) read_text();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool here(std::string_view what) const { return s_.compare(at_, what.size(), what) == 0; }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void move_to(size_t end) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<int64_t>(at_),
                                         s_.begin() + static_cast<int64_t>(end), '\n'));
    at_ = end;
  }
  [[noreturn]] void fail_here(const std::string& what) const {
    fail(concat("line ", line_, ": ", what));
  }

  // Position of the next "{{", "{%" or "{#".
  size_t next_tag() const {
    size_t at = at_;
    while ((at = s_.find('{', at)) != std::string::npos) {
      if (at + 1 < s_.size() && (s_[at + 1] == '{' || s_[at + 1] == '%' || s_[at + 1] == '#'))
        return at;
      ++at;
    }
    return s_.size();
  }

  void read_text() {
    const size_t tag = next_tag();
    std::string text = s_.substr(at_, tag - at_);
    if (tag == s_.size()) return add_text(text), move_to(tag);
    const char sign = tag + 2 < s_.size() ? s_[tag + 2] : ' ';
    strip_before_tag(text, sign, s_[tag + 1] != '{');
    add_text(text);
    move_to(tag);
    const char kind = s_[at_ + 1];
    at_ += sign == '-' || sign == '+' ? 3 : 2;
    if (kind == '#') return skip_comment();
    add(kind == '{' ? TokenKind::kPrint : TokenKind::kBlock, "");
    read_code(kind == '{' ? "}}" : "%}", kind == '%');
    if (kind == '%') handle_raw();
  }

  void strip_before_tag(std::string& text, char sign, bool block) const {
    if (sign == '-') {
      while (!text.empty() && is_space(text.back())) text.pop_back();
    } else if (block && sign != '+') {
      // Blanks before a tag that starts a line belong to the tag.
      const size_t last = text.find_last_not_of(" \t");
      const bool own_line = last == std::string::npos ? line_begins_ : text[last] == '\n';
      if (own_line) text.erase(last == std::string::npos ? 0 : last + 1);
    }
  }

  void add_text(const std::string& text) {
    if (!text.empty()) add(TokenKind::kText, text);
  }

  // After a tag: skips white space after "-", else the end of the line for a block.
  void leave_tag(bool strip, bool keep, bool block) {
    size_t end = at_;
    if (strip)
      while (end < s_.size() && is_space(s_[end])) ++end;
    else if (block && !keep && end < s_.size() && s_[end] == '\n')
      ++end;
    move_to(end);
    line_begins_ = at_ > 0 && s_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = s_.find("#}", at_);
    if (end == std::string::npos) fail_here("a comment has no end");
    const bool strip = s_[end - 1] == '-' && end > at_, keep = s_[end - 1] == '+' && end > at_;
    move_to(end + 2);
    leave_tag(strip, keep, true);
  }

  void read_code(std::string_view end, bool block) {
    int open = 0;  // brackets, inside which "}}" closes two
    for (;;) {
      while (at_ < s_.size() && is_space(s_[at_])) move_to(at_ + 1);
      if (at_ >= s_.size()) fail_here(concat("a tag is not closed by ", end));
      const bool sign =
          (s_[at_] == '-' || s_[at_] == '+') && s_.compare(at_ + 1, end.size(), end) == 0;
      if (open == 0 && (sign || here(end))) {
        const char mark = sign ? s_[at_] : ' ';
        add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, "");
        move_to(at_ + end.size() + (sign ? 1 : 0));
        tag_end_ = at_;
        return leave_tag(mark == '-', mark == '+', block);
      }
      read_token(open);
    }
  }

  void read_token(int& open) {
    const char c = s_[at_];
    if (begins_name(c)) return read_name();
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string();
    constexpr std::string_view kDouble[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view symbol : kDouble)
      if (here(symbol)) {
        add(TokenKind::kSymbol, std::string(symbol));
        return move_to(at_ + 2);
      }
    if (std::string_view("+-*/%~<>()[]{},.:|=").find(c) == std::string_view::npos)
      fail_here(concat("\"", c, "\" is not part of an expression"));
    open += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (open < 0) fail_here(concat("\"", c, "\" closes no open bracket"));
    add(TokenKind::kSymbol, std::string(1, c));
    move_to(at_ + 1);
  }

  void read_name() {
    size_t end = at_;
    while (end < s_.size() && (begins_name(s_[end]) || is_digit(s_[end]))) ++end;
    add(TokenKind::kName, s_.substr(at_, end - at_));
    move_to(end);
  }

  void read_number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < s_.size() && (is_digit(s_[end]) || s_[end] == '_')) ++end;
    };
    digits();
    bool real = false;
    if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < s_.size() && (s_[end] == 'e' || s_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < s_.size() && (s_[exponent] == '+' || s_[exponent] == '-')) ++exponent;
      if (exponent < s_.size() && is_digit(s_[exponent])) {
        real = true;
        end = exponent;
        digits();
      }
    }
    std::string text = s_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? TokenKind::kReal : TokenKind::kInteger, text);
    move_to(end);
  }

  void read_string() {
    const char quote = s_[at_];
    std::string text;
    size_t i = at_ + 1;
    for (; i < s_.size() && s_[i] != quote; ++i) {
      if (s_[i] != '\\' || i + 1 == s_.size()) {
        text += s_[i];
        continue;
      }
      const char c = s_[++i];
      switch (c) {
        case 'n': text += '\n'; break;
        case 't': text += '\t'; break;
        case 'r': text += '\r'; break;
        case 'b': text += '\b'; break;
        case 'f': text += '\f'; break;
        case 'v': text += '\v'; break;
        case 'a': text += '\a'; break;
        case '\n': break;
        case '\\':
        case '\'':
        case '"': text += c; break;
        case 'x':
        case 'u':
        case 'U': text += code_point(i, c == 'x' ? 2 : c == 'u' ? 4 : 8); break;
        default:
          if (c >= '0' && c <= '7')
            text += octal(i);
          else
            text += {'\\', c};
      }
    }
    if (i >= s_.size()) fail_here("a string has no end");
    add(TokenKind::kString, text);
    move_to(i + 1);
  }

  // Character of up to three octal digits from s_[i] on; i is moved to the last of them.
  std::string octal(size_t& i) const {
    uint32_t c = static_cast<uint32_t>(s_[i] - '0');
    for (int n = 0; n < 2 && i + 1 < s_.size() && s_[i + 1] >= '0' && s_[i + 1] <= '7'; ++n)
      c = c * 8 + static_cast<uint32_t>(s_[++i] - '0');
    return utf8_of(c);
  }

  // Character of the hexadecimal digits after s_[i]; i is moved to the last of them.
  std::string code_point(size_t& i, size_t digits) {
    uint32_t c = 0;
    for (size_t n = 0; n < digits; ++n) {
      const size_t digit =
          i + 1 < s_.size()
              ? std::string_view("0123456789abcdef").find(static_cast<char>(s_[i + 1] | 0x20))
              : std::string_view::npos;
      if (digit == std::string_view::npos) fail_here("an escape has too few digits");
      c = c * 16 + static_cast<uint32_t>(digit);
      ++i;
    }
    if (c >= 0xD800 && c < 0xE000) fail_here("an escape is half of a surrogate pair");
    if (c > 0x10FFFF) fail_here("an escape is above U+10FFFF");
    return utf8_of(c);
  }

  static std::string utf8_of(uint32_t c) {
    const auto rest = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80) return {static_cast<char>(c)};
    if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), rest(0)};
    if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), rest(6), rest(0)};
    return {static_cast<char>(0xF0 | c >> 18), rest(12), rest(6), rest(0)};
  }

  // Content of {% raw %} is text.
  void handle_raw() {
    const size_t n = tokens_.size();
    if (n < 3 || tokens_[n - 3].kind != TokenKind::kBlock || tokens_[n - 2].text != "raw" ||
        tokens_[n - 2].kind != TokenKind::kName)
      return;
    tokens_.resize(n - 3);
    size_t tag = at_;
    for (;; ++tag) {
      tag = s_.find("{%", tag);
      if (tag == std::string::npos) fail_here("a raw block has no end");
      const size_t word = s_.find_first_not_of("-+ \t\n", tag + 2);
      if (word != std::string::npos && s_.compare(word, 6, "endraw") == 0) break;
    }
    // The end of the line after {% raw %} is part of the tag.
    const bool stripped = s_[tag_end_ - 3] == '-';
    if (!stripped) line_begins_ = false;
    const size_t begin = stripped ? at_ : tag_end_;
    std::string text = s_.substr(begin, tag - begin);
    strip_before_tag(text, s_[tag + 2], true);
    add_text(text);
    const size_t end = s_.find("%}", tag);
    if (end == std::string::npos) fail_here("a raw block has no end");
    move_to(end + 2);
    leave_tag(s_[end - 1] == '-', false, true);
  }

  std::string s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // at_ is the start of a line
  size_t tag_end_ = 0;       // of the last tag, before stripped white space
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source) { return Lexer(source).read(); }

}  // namespace trireme::jinja
