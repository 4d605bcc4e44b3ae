// Unicode functions for tokenizers, based on utf8proc. Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::string normalize(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);
bool is_letter(char32_t c);         // general category L
bool is_numeric(char32_t c);        // general category N
bool is_decimal_digit(char32_t c);  // general category Nd
// Returns the text without marks (general category M).
std::string strip_marks(std::string_view text);

// Decodes the character that starts at `at`, and advances `at` past it.
char32_t next_character(std::string_view text, size_t& at);
// Returns the bytes of the character with this first byte; 1 for 0xF8 and above, which start none.
size_t character_bytes(char lead);
void append_character(char32_t c, std::string& out);

bool is_white_space(char32_t c);  // property White_Space
// \w of Rust's regular expressions, which includes joiners; engine/text/regex.h differs.
bool is_word(char32_t c);

// Returns the text with each byte that is part of no character replaced by U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace trireme
