// Regular expressions over UTF-8 with the syntax and results of Oniguruma (its own syntax, its
// default options), which HuggingFace's tokenizers use; matched by PCRE2.
//
// engine/text/regex_syntax.h translates the syntax. Constructs without a translation (absent
// operators, callouts, text segments, references to recursion levels, options for ASCII) are
// refused with InputError.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class Regex {
 public:
  // `what` is the prefix of the message about an invalid expression.
  Regex(const std::string& pattern, const std::string& what);

  struct Match {
    size_t begin = 0, end = 0;
  };
  // Finds the first match at or after `from`; false if there is none. `text` must be valid UTF-8
  // and `from` the start of a character. InputError if matching exceeds its limits. May be called
  // by several threads.
  bool find(std::string_view text, size_t from, Match& match) const;
  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::shared_ptr<void> code_;
};

// Successive matches in a text, as the tokenizers library finds them: an empty match counts, unless
// it directly follows another match. Regex and text must outlive it.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}
  bool next(Regex::Match& match);

 private:
  const Regex& regex_;
  std::string_view text_;
  size_t from_ = 0, last_end_ = std::string_view::npos;
};

// Returns an expression that matches exactly `text`.
std::string quoted_pattern(std::string_view text);

}  // namespace trireme
