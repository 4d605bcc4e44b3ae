#include "engine/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/utf8.h"

namespace trireme {
namespace {

utf8proc_option_t options_of(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    case NormalForm::kNfd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NormalForm::kNfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return UTF8PROC_STABLE;
}

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void append(char32_t c, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

}  // namespace

namespace {

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Decomposed characters, marks not yet in canonical order.
std::vector<utf8proc_int32_t> decomposed(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  int boundary = 0;
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_character(text, at));
    utf8proc_int32_t parts[32];  // 18 at most
    const auto count = utf8proc_decompose_char(c, parts, std::ssize(parts), options, &boundary);
    TRIREME_CHECK(count >= 0 && count <= std::ssize(parts), "utf8proc: ", count);
    out.insert(out.end(), parts, parts + count);
  }
  return out;
}

// Sorts runs of marks by their classes (Unicode, canonical ordering). The library's own sort is
// quadratic in a run's length, and a text may be one run.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), is_mark);
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    if (end - begin > 1) std::ranges::stable_sort(begin, end, {}, combining_class);
    begin = end;
  }
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const utf8proc_option_t options = options_of(form);
  std::vector<utf8proc_int32_t> characters = decomposed(text, options);
  order_marks(characters);
  const auto count = utf8proc_normalize_utf32(characters.data(), std::ssize(characters), options);
  TRIREME_CHECK(count >= 0, "utf8proc: ", utf8proc_errmsg(count));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append(static_cast<char32_t>(characters[static_cast<size_t>(i)]), out);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (c == 0x130)
      out += "i\xCC\x87";  // the only character whose lower case has two characters
    else
      append(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
  return out;
}

bool is_letter(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool is_numeric(char32_t c) {
  return is_decimal_digit(c) || category(c) == UTF8PROC_CATEGORY_NL ||
         category(c) == UTF8PROC_CATEGORY_NO;
}

bool is_decimal_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

std::string strip_marks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const utf8proc_category_t kind = category(next_character(text, at));
    if (kind != UTF8PROC_CATEGORY_MN && kind != UTF8PROC_CATEGORY_MC &&
        kind != UTF8PROC_CATEGORY_ME)
      out.append(text.substr(begin, at - begin));
  }
  return out;
}

size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 || byte >= 0xF8 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_character(char32_t c, std::string& out) { append(c, out); }

char32_t next_character(std::string_view text, size_t& at) {
  const size_t bytes = character_bytes(text[at]);
  constexpr unsigned kLead[] = {0x7F, 0x1F, 0x0F, 0x07};
  char32_t c = static_cast<unsigned char>(text[at]) & kLead[bytes - 1];
  for (size_t i = 1; i < bytes; ++i)
    c = c << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  at += bytes;
  return c;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  if (c < 128)
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  // Letters in circles and squares are alphabetic, but have the category of signs.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189))
    return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

std::string valid_utf8(std::string_view bytes) {
  if (find_invalid_utf8(bytes) == bytes.size()) return std::string(bytes);
  return repaired_utf8(std::string(bytes), Utf8Repair::kEachByte);
}

}  // namespace trireme
