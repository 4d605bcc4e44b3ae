// Finds stop strings in a text that comes byte by byte (Knuth, Morris, Pratt 1977): O(1) amortised
// for each byte and stop string, however the text is cut into tokens.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme {

class StopMatcher {
 public:
  // None may be empty.
  explicit StopMatcher(std::vector<std::string> stops);

  // Goes on by one byte. The number of the longest stop string that ends with it; -1: none does.
  int push(char byte);
  // The last bytes of the text that are the beginning of a stop string.
  size_t held() const { return held_; }
  const std::string& stop(int number) const { return patterns_[static_cast<size_t>(number)].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // of text[0, i]: the longest that both begins and ends it
    size_t matched = 0;          // bytes of `text` that the text ends with
  };
  std::vector<Pattern> patterns_;
  size_t held_ = 0;
};

}  // namespace trireme
