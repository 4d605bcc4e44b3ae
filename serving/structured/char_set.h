// Sets of Unicode scalar values (code points without surrogates), as ascending ranges that neither
// overlap nor touch.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

struct CharRange {
  uint32_t first = 0, last = 0;  // inclusive
  bool operator==(const CharRange&) const = default;
};
using CharSet = std::vector<CharRange>;

inline constexpr uint32_t kLastChar = 0x10FFFF;

// Union of ranges, which may overlap and be in any order. Removes surrogates and values above
// U+10FFFF.
CharSet make_char_set(const CharSet& ranges);
// The following require sets as make_char_set() returns them.
CharSet complement(const CharSet& set);
CharSet united(const CharSet& a, const CharSet& b);
CharSet without(const CharSet& a, const CharSet& b);
bool contains(const CharSet& set, uint32_t c);

// UTF-8 encoding of a range of scalar values, as sequences of byte ranges (Thompson; Cox 2007): a
// text is a character of the range iff its bytes match one of the sequences.
struct ByteRange {
  uint8_t first = 0, last = 0;
};
std::vector<std::vector<ByteRange>> utf8_ranges(CharRange range);

}  // namespace trireme
