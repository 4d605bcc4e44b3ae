// UTF-8 (RFC 3629): overlong forms, surrogates and code points above U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

// Offset of the first byte that is not part of a valid character; text.size() when all are valid.
size_t find_invalid_utf8(std::string_view text);

// Moves the longest decidable prefix of `pending` to the result: complete characters as they are,
// each invalid byte as U+FFFD. What may still become a character (at most three bytes) stays.
std::string take_complete_utf8(std::string& pending);

}  // namespace trireme
