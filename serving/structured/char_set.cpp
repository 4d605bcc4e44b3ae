#include "serving/structured/char_set.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

int bytes_of(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

std::array<uint8_t, 4> encode(uint32_t c) {
  const auto low = [&](int shift) { return static_cast<uint8_t>(0x80 | (c >> shift & 0x3F)); };
  switch (bytes_of(c)) {
    case 1: return {static_cast<uint8_t>(c)};
    case 2: return {static_cast<uint8_t>(0xC0 | c >> 6), low(0)};
    case 3: return {static_cast<uint8_t>(0xE0 | c >> 12), low(6), low(0)};
    default: return {static_cast<uint8_t>(0xF0 | c >> 18), low(12), low(6), low(0)};
  }
}

// Splits ranges whose UTF-8 is not a product of byte ranges.
void split(CharRange range, std::vector<std::vector<ByteRange>>& out) {
  if (bytes_of(range.first) != bytes_of(range.last)) {
    for (const uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu})
      if (range.first <= last && last < range.last) {
        split({range.first, last}, out);
        return split({last + 1, range.last}, out);
      }
  }
  const int bytes = bytes_of(range.first);
  for (int i = 1; i < bytes; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((range.first & ~mask) == (range.last & ~mask)) continue;
    if ((range.first & mask) != 0) {
      split({range.first, range.first | mask}, out);
      return split({(range.first | mask) + 1, range.last}, out);
    }
    if ((range.last & mask) != mask) {
      split({range.first, (range.last & ~mask) - 1}, out);
      return split({range.last & ~mask, range.last}, out);
    }
  }
  const auto first = encode(range.first), last = encode(range.last);
  std::vector<ByteRange> sequence;
  for (size_t i = 0; i < static_cast<size_t>(bytes); ++i) sequence.push_back({first[i], last[i]});
  out.push_back(std::move(sequence));
}

}  // namespace

CharSet make_char_set(const CharSet& ranges) {
  CharSet whole;
  for (CharRange range : ranges) {
    range.last = std::min(range.last, kLastChar);
    if (range.first > range.last) continue;
    if (range.first < kFirstSurrogate)
      whole.push_back({range.first, std::min(range.last, kFirstSurrogate - 1)});
    if (range.last > kLastSurrogate)
      whole.push_back({std::max(range.first, kLastSurrogate + 1), range.last});
  }
  std::ranges::sort(whole, {}, &CharRange::first);
  CharSet out;
  for (const CharRange& range : whole) {
    if (!out.empty() && range.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, range.last);
    else
      out.push_back(range);
  }
  return out;
}

CharSet complement(const CharSet& set) {
  CharSet out;
  uint32_t next = 0;
  for (const CharRange& range : set) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastChar) out.push_back({next, kLastChar});
  return make_char_set(out);
}

CharSet united(const CharSet& a, const CharSet& b) {
  CharSet out = a;
  out.insert(out.end(), b.begin(), b.end());
  return make_char_set(out);
}

CharSet without(const CharSet& a, const CharSet& b) { return complement(united(complement(a), b)); }

bool contains(const CharSet& set, uint32_t c) {
  return std::ranges::any_of(set, [&](const CharRange& r) { return r.first <= c && c <= r.last; });
}

std::vector<std::vector<ByteRange>> utf8_ranges(CharRange range) {
  std::vector<std::vector<ByteRange>> out;
  for (const CharRange& part : make_char_set({range})) split(part, out);
  return out;
}

}  // namespace trireme
