#include "engine/text/regex_literal.h"

#include "engine/text/case_fold.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

std::string exact(char32_t c) {
  const bool is_letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  if (c < 0x80 && !is_letter) return code_escape(c);
  std::string out;
  append_character(c, out);
  return out;
}

std::string any_case(char32_t c) {
  const std::u32string equals = CaseFolds::get().equals(c);
  return equals.size() == 1 ? exact(c) : class_of(equals);
}

std::string any_case_of(const std::u32string& characters) {
  std::string out;
  for (const char32_t c : characters) out += any_case(c);
  return out;
}

}  // namespace

std::string literal_fragment(const std::u32string& literal, bool ignore_case, bool sequences,
                             const PatternCursor& cursor) {
  std::string out;
  if (!ignore_case) {
    for (const char32_t c : literal) out += exact(c);
    return out;
  }
  const CaseFolds& folds = CaseFolds::get();
  if (!sequences) return any_case_of(literal);
  char32_t before = 0;
  for (size_t at = 0; at < literal.size();) {
    const std::u32string own = folds.fold(literal[at]);
    if (own.size() > 1) {
      if (before != 0 && !folds.folding_to({before, own[0]}).empty())
        cursor.refuse("(?i) with a character whose folding overlaps another's");
      out += "(?:" + any_case(literal[at]) + '|' + any_case_of(own) + ')';
      before = own.back();
      ++at;
      continue;
    }
    // The longest sequence that starts here; the next one starts after it.
    size_t length = 3;
    std::u32string sequence, ligatures;
    for (; length > 1; --length) {
      sequence.clear();
      for (size_t i = at; i < std::min(at + length, literal.size()); ++i)
        sequence += folds.fold(literal[i]);
      if (at + length <= literal.size() && sequence.size() == length)
        ligatures = folds.folding_to(sequence);
      if (!ligatures.empty()) break;
    }
    if (ligatures.empty())
      out += any_case(literal[at]);
    else
      out += "(?:" + any_case_of(sequence) + '|' + class_of(ligatures) + ')';
    at += length;
    before = folds.fold(literal[at - 1]).back();
  }
  return out;
}

}  // namespace trireme
