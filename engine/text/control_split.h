// Splitter of a text at the control tokens spelled in it, and lookup of breaks.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/trie.h"

namespace trireme {

inline const Trie& no_controls() {
  static const Trie kNone;
  return kNone;
}

// Returns whether one of the ascending offsets is in (begin, end].
inline bool has_break(std::span<const size_t> breaks, size_t begin, size_t end) {
  const auto first = std::ranges::upper_bound(breaks, begin);
  return first != breaks.end() && *first <= end;
}

// Appends the ids of the controls, and calls plain(part), which appends those of the text between,
// in order. Of several controls that start at one byte the longest matches; a control with a break
// inside (EncodeOptions::breaks) does not match. plain is also called if the whole text is empty.
template <class Plain>
void split_at_controls(std::string_view text, const Trie& controls, std::span<const size_t> breaks,
                       std::vector<int32_t>& ids, Plain&& plain) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    int32_t id = -1;
    if (controls.can_begin_with(text[at]))
      controls.for_each_prefix(text, at, [&](size_t e, int32_t found) {
        if (!has_break(breaks, at, e)) end = e, id = found;
      });
    if (id < 0) {
      ++at;
      continue;
    }
    if (at > done) plain(text.substr(done, at - done));
    ids.push_back(id);
    done = at = end;
  }
  if (done < text.size() || text.empty()) plain(text.substr(done));
}

}  // namespace trireme
