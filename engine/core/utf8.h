// UTF-8 (RFC 3629), checked and repaired: overlong forms, surrogates and code points above U+10FFFF
// are invalid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// Offset of the first byte that is not part of a valid character; text.size() when all are valid.
size_t find_invalid_utf8(std::string_view text);

// Invalid bytes that one U+FFFD replaces: each byte that belongs to no character, or the longest
// incomplete start of a character (Unicode, section 3.9: maximal subparts).
enum class Utf8Repair { kEachByte, kMaximalPart };

// Moves the longest decidable prefix of `pending` to the result: complete characters unchanged,
// invalid bytes as U+FFFD. An unfinished character at the end (at most three bytes) stays.
std::string take_complete_utf8(std::string& pending, Utf8Repair repair = Utf8Repair::kEachByte);
// Returns all of `bytes` repaired: an unfinished character at the end is invalid too.
std::string repaired_utf8(std::string bytes, Utf8Repair repair);

// Untrusted text made safe for a terminal: control characters (U+0000 to U+001F except line feed
// and tab, U+007F to U+009F) and invalid bytes appear as \xNN, one for each byte. Text longer than
// max_bytes is cut, and the number of bytes left out is appended.
std::string printable(std::string_view text, size_t max_bytes = 16 << 10);

}  // namespace trireme
