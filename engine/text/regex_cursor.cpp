#include "engine/text/regex_cursor.h"

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

constexpr int kMaxRepeat = 100'000;  // Oniguruma's limit

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Consumes up to `most` digits and returns their number.
int take_digits(PatternCursor& cursor, int base, int most, char32_t& value) {
  int count = 0;
  for (value = 0; count < most && digit_of(cursor.peek()) < base; ++count, ++cursor.at)
    value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit_of(cursor.peek()));
  return count;
}

void add_code(const PatternCursor& cursor, char32_t code, std::u32string& out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    cursor.fail("a code point is out of range");
  out += code;
}

// \x{61 62} and \o{141 142}, after the brace.
void read_braced(PatternCursor& cursor, int base, std::u32string& out) {
  do {
    char32_t code = 0;
    if (take_digits(cursor, base, base == 16 ? 8 : 11, code) == 0)
      cursor.fail("a code point is not a number");
    add_code(cursor, code, out);
    while (cursor.peek() == ' ' || cursor.peek() == '\n') ++cursor.at;
  } while (!cursor.done() && cursor.peek() != '}' && cursor.peek() != '-');
  if (!cursor.take("}")) cursor.refuse("\\x{...} other than a list of code points");
}

// \xHH and \ooo, after the backslash: bytes; those of one character are adjacent.
void read_bytes(PatternCursor& cursor, int base, std::u32string& out) {
  std::string bytes;
  do {
    if (base == 16) ++cursor.at;
    char32_t code = 0;
    take_digits(cursor, base, base == 16 ? 2 : 3, code);
    if (code > 0xFF) cursor.fail("an octal number is above 377");
    bytes += static_cast<char>(code);
    if (bytes.size() == character_bytes(bytes[0])) break;
    const bool more =
        base == 16 ? cursor.take("\\x") : digit_of(cursor.peek(1)) < 8 && cursor.take("\\");
    if (!more) break;
    if (base == 16) --cursor.at;
  } while (true);
  if (find_invalid_utf8(bytes) != bytes.size()) cursor.fail("the bytes are not a UTF-8 character");
  size_t at = 0;
  out += next_character(bytes, at);
}

}  // namespace

bool PatternCursor::take(std::string_view expected) {
  if (text.substr(std::min(at, text.size()), expected.size()) != expected) return false;
  at += expected.size();
  return true;
}

std::string PatternCursor::take_until(char end) {
  const size_t found = text.find(end, at);
  if (found == std::string_view::npos) fail(concat('"', end, "\" is missing"));
  std::string out(text.substr(at, found - at));
  at = found + 1;
  return out;
}

char32_t PatternCursor::take_character() { return next_character(text, at); }

int PatternCursor::take_number() {
  int value = -1;
  while (peek() >= '0' && peek() <= '9') {
    value = std::max(value, 0) * 10 + (text[at++] - '0');
    if (value > kMaxRepeat) fail(concat("a number is above ", kMaxRepeat));
  }
  return value;
}

void PatternCursor::fail(const std::string& why) const {
  fail_input(what, ": the regular expression \"", text, "\" is invalid: ", why, " at byte ", at);
}

void PatternCursor::refuse(const std::string& construct) const {
  fail_input(what, ": ", construct, " is not supported in the regular expression \"", text, "\"");
}

bool read_code_escape(PatternCursor& cursor, bool in_class, std::u32string& out) {
  constexpr std::string_view kLetters = "ntrfaevb", kCodes = "\n\t\r\f\a\x1b\v\b";
  const char letter = cursor.peek();
  if (const size_t found = kLetters.find(letter);
      found != std::string_view::npos && !cursor.done() && (letter != 'b' || in_class)) {
    ++cursor.at;
    out += static_cast<char32_t>(kCodes[found]);
  } else if ((letter == 'x' || letter == 'o') && cursor.peek(1) == '{') {
    cursor.at += 2;
    read_braced(cursor, letter == 'x' ? 16 : 8, out);
  } else if (letter == 'x') {
    read_bytes(cursor, 16, out);
  } else if (digit_of(letter) < 8) {
    read_bytes(cursor, 8, out);
  } else if (letter == 'u') {
    ++cursor.at;
    char32_t code = 0;
    if (take_digits(cursor, 16, 4, code) != 4) cursor.fail("\\u does not have four digits");
    add_code(cursor, code, out);
  } else if (letter == 'c' || cursor.text.substr(cursor.at).starts_with("C-")) {
    cursor.at += letter == 'c' ? 1 : 2;
    if (cursor.done() || cursor.peek() == '\\') cursor.refuse("an escape as a control character");
    const char32_t c = cursor.take_character();
    out += c == '?' ? char32_t{0x7F} : c & 0x9F;
  } else if (cursor.text.substr(cursor.at).starts_with("M-")) {
    cursor.refuse("\\M- (a meta character)");
  } else {
    return false;
  }
  return true;
}

bool read_set_escape(PatternCursor& cursor, bool in_class, CharacterSet& out) {
  const char letter = cursor.peek(), lower = static_cast<char>(letter | 0x20);
  const char* const name = lower == 'w'   ? "word"
                           : lower == 'd' ? "digit"
                           : lower == 's' ? "space"
                           : lower == 'h' ? "xdigit"
                                          : nullptr;
  if (name != nullptr) {
    ++cursor.at;
    out = property_set(name, in_class, cursor.what);
    return out.negated = letter != lower, true;
  }
  if (lower != 'p') return false;
  // Newer releases of Oniguruma read \pL as a property, older ones as the letter p.
  if (cursor.peek(1) != '{') cursor.refuse(concat('\\', letter, " without braces"));
  cursor.at += 2;
  const bool negated = cursor.take("^") != (letter == 'P');
  out = property_set(cursor.take_until('}'), in_class, cursor.what);
  return out.negated = negated, true;
}

}  // namespace trireme
