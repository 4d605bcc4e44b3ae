#include "serving/text/stop_matcher.h"

#include <algorithm>

#include "engine/core/error.h"

namespace trireme {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    TRIREME_CHECK(!text.empty(), "a stop string is empty");
    std::vector<size_t> border(text.size(), 0);
    for (size_t i = 1, length = 0; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[length]) length = border[length - 1];
      if (text[i] == text[length]) ++length;
      border[i] = length;
    }
    patterns_.push_back({std::move(text), std::move(border), 0});
  }
}

int StopMatcher::push(char byte) {
  int found = -1;
  held_ = 0;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    Pattern& p = patterns_[i];
    while (p.matched > 0 && p.text[p.matched] != byte) p.matched = p.border[p.matched - 1];
    if (p.text[p.matched] == byte) ++p.matched;
    held_ = std::max(held_, p.matched);
    if (p.matched < p.text.size()) continue;
    p.matched = p.border.back();
    if (found < 0 || p.text.size() > stop(found).size()) found = static_cast<int>(i);
  }
  return found;
}

}  // namespace trireme
