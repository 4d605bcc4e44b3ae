// UTF-8 (RFC 3629): overlong forms, surrogates and code points above U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// Offset of the first byte that is not part of a valid character; text.size() when all are valid.
size_t find_invalid_utf8(std::string_view text);

// What becomes one U+FFFD: each byte that is no part of a character, or as many bytes as begin a
// character that is not continued (Unicode, section 3.9: maximal subparts).
enum class Utf8Repair { kEachByte, kMaximalPart };

// Moves the longest decidable prefix of `pending` to the result: complete characters as they are,
// what is invalid as U+FFFD. What may still become a character (at most three bytes) stays.
std::string take_complete_utf8(std::string& pending, Utf8Repair repair = Utf8Repair::kEachByte);
// The whole of it: an unfinished character at the end is invalid.
std::string repaired_utf8(std::string bytes, Utf8Repair repair);

// The same to show on a terminal, whoever wrote it: control characters but line feeds and tabs, and
// bytes that are no character, as \xNN; of more than most_bytes the beginning, and how much is left
// out.
std::string printable(std::string_view text, size_t most_bytes = 16 << 10);

}  // namespace trireme
