// Regular expressions over UTF-8, as HuggingFace's tokenizers write them: the syntax of Oniguruma,
// computed by PCRE2.
//
// \s, \w, \d and their opposites mean Unicode's White_Space, words (Alphabetic, marks, decimal
// digits, connectors) and decimal digits, as they do there. What the two syntaxes do not share
// (intersections of classes) is refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class Regex {
 public:
  // `what` begins the message about an expression that is not understood.
  Regex(const std::string& pattern, const std::string& what);

  struct Match {
    size_t begin = 0, end = 0;
  };
  // The first match at or after `from`; false where there is none. `text` is valid UTF-8 and `from`
  // the beginning of a character. InputError where finding out takes beyond all measure. May be
  // called by several threads.
  bool find(std::string_view text, size_t from, Match& match) const;
  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::shared_ptr<void> code_;
};

// `text` as an expression that matches it and nothing else.
std::string quoted_pattern(std::string_view text);

}  // namespace trireme
