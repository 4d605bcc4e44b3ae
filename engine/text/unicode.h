// What tokenizers ask of Unicode beyond UTF-8 itself, answered by utf8proc. Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::string normalize(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);
bool is_letter(char32_t c);         // the general category L
bool is_numeric(char32_t c);        // the general category N
bool is_decimal_digit(char32_t c);  // the general category Nd
// Without marks (general category M).
std::string strip_marks(std::string_view text);

// The character that begins at `at`, which is moved behind it.
char32_t next_character(std::string_view text, size_t& at);
// Bytes of the character with this first byte; 1 for 0xF8 and above, which begin none.
size_t character_bytes(char lead);
void append_character(char32_t c, std::string& out);

bool is_white_space(char32_t c);  // the property White_Space
// \w of Rust's regular expressions, to which joiners belong; engine/text/regex.h has another.
bool is_word(char32_t c);

// Each byte that is no part of a character as U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace trireme
