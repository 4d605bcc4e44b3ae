// Streaming search for stop strings (Knuth, Morris, Pratt 1977): O(1) amortized per byte and stop
// string, independent of how tokens divide the text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme {

class StopMatcher {
 public:
  // stops: the stop strings; none may be empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Appends one byte. Returns the index of the longest stop string that ends with it; -1: none.
  int push(char byte);
  // Bytes of the longest suffix of the text that is a prefix of a stop string.
  size_t held() const { return held_; }
  const std::string& stop(int number) const { return patterns_[static_cast<size_t>(number)].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // of text[0, i]: longest proper prefix that is also a suffix
    size_t matched = 0;          // bytes of the prefix of `text` that is a suffix of the input
  };
  std::vector<Pattern> patterns_;
  size_t held_ = 0;
};

}  // namespace trireme
