// Case folding of regular expressions: Unicode's full case folding (CaseFolding.txt, C + F).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trireme {

class CaseFolds {
 public:
  // Returns the tables, built at the first call. May be called by several threads.
  static const CaseFolds& get();

  // Returns the characters with the same folding as `c`, including `c`; only `c` if it has no case.
  std::u32string equals(char32_t c) const;
  // Returns the folding of `c`: one to three characters.
  std::u32string fold(char32_t c) const;
  // Returns the characters that fold to this sequence of two or three; empty: none.
  const std::u32string& folding_to(const std::u32string& sequence) const;
  // Every character with case, sorted.
  const std::u32string& all() const { return all_; }
  // Sequences of two or three characters, and the characters that fold to them.
  const std::map<std::u32string, std::u32string>& sequences() const { return sequences_; }

 private:
  CaseFolds();
  std::map<char32_t, std::u32string> folds_;    // of characters that are not their own folding
  std::map<char32_t, std::u32string> singles_;  // one-character folding: the characters with it
  std::map<std::u32string, std::u32string> sequences_;
  std::u32string all_;
};

}  // namespace trireme
