#include "engine/text/jinja/case_mapping.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/text/case_fold.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/text_tools.h"
#include "engine/text/regex.h"
#include "engine/text/unicode.h"

namespace trireme::jinja {
namespace {

// Characters whose upper or title case has several (SpecialCasing.txt, unconditional), sorted.
struct SpecialCase {
  char32_t character;
  const char32_t *upper, *title;
};
constexpr SpecialCase kSpecialCases[] = {{0xDF, U"SS", U"Ss"},
                                         {0x149, U"\u02BCN", U"\u02BCN"},
                                         {0x1F0, U"J\u030C", U"J\u030C"},
                                         {0x390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
                                         {0x3B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
                                         {0x587, U"\u0535\u0552", U"\u0535\u0582"},
                                         {0x1E96, U"H\u0331", U"H\u0331"},
                                         {0x1E97, U"T\u0308", U"T\u0308"},
                                         {0x1E98, U"W\u030A", U"W\u030A"},
                                         {0x1E99, U"Y\u030A", U"Y\u030A"},
                                         {0x1E9A, U"A\u02BE", U"A\u02BE"},
                                         {0x1F50, U"\u03A5\u0313", U"\u03A5\u0313"},
                                         {0x1F52, U"\u03A5\u0313\u0300", U"\u03A5\u0313\u0300"},
                                         {0x1F54, U"\u03A5\u0313\u0301", U"\u03A5\u0313\u0301"},
                                         {0x1F56, U"\u03A5\u0313\u0342", U"\u03A5\u0313\u0342"},
                                         {0x1F80, U"\u1F08\u0399", U"\u1F88"},
                                         {0x1F81, U"\u1F09\u0399", U"\u1F89"},
                                         {0x1F82, U"\u1F0A\u0399", U"\u1F8A"},
                                         {0x1F83, U"\u1F0B\u0399", U"\u1F8B"},
                                         {0x1F84, U"\u1F0C\u0399", U"\u1F8C"},
                                         {0x1F85, U"\u1F0D\u0399", U"\u1F8D"},
                                         {0x1F86, U"\u1F0E\u0399", U"\u1F8E"},
                                         {0x1F87, U"\u1F0F\u0399", U"\u1F8F"},
                                         {0x1F88, U"\u1F08\u0399", U"\u1F88"},
                                         {0x1F89, U"\u1F09\u0399", U"\u1F89"},
                                         {0x1F8A, U"\u1F0A\u0399", U"\u1F8A"},
                                         {0x1F8B, U"\u1F0B\u0399", U"\u1F8B"},
                                         {0x1F8C, U"\u1F0C\u0399", U"\u1F8C"},
                                         {0x1F8D, U"\u1F0D\u0399", U"\u1F8D"},
                                         {0x1F8E, U"\u1F0E\u0399", U"\u1F8E"},
                                         {0x1F8F, U"\u1F0F\u0399", U"\u1F8F"},
                                         {0x1F90, U"\u1F28\u0399", U"\u1F98"},
                                         {0x1F91, U"\u1F29\u0399", U"\u1F99"},
                                         {0x1F92, U"\u1F2A\u0399", U"\u1F9A"},
                                         {0x1F93, U"\u1F2B\u0399", U"\u1F9B"},
                                         {0x1F94, U"\u1F2C\u0399", U"\u1F9C"},
                                         {0x1F95, U"\u1F2D\u0399", U"\u1F9D"},
                                         {0x1F96, U"\u1F2E\u0399", U"\u1F9E"},
                                         {0x1F97, U"\u1F2F\u0399", U"\u1F9F"},
                                         {0x1F98, U"\u1F28\u0399", U"\u1F98"},
                                         {0x1F99, U"\u1F29\u0399", U"\u1F99"},
                                         {0x1F9A, U"\u1F2A\u0399", U"\u1F9A"},
                                         {0x1F9B, U"\u1F2B\u0399", U"\u1F9B"},
                                         {0x1F9C, U"\u1F2C\u0399", U"\u1F9C"},
                                         {0x1F9D, U"\u1F2D\u0399", U"\u1F9D"},
                                         {0x1F9E, U"\u1F2E\u0399", U"\u1F9E"},
                                         {0x1F9F, U"\u1F2F\u0399", U"\u1F9F"},
                                         {0x1FA0, U"\u1F68\u0399", U"\u1FA8"},
                                         {0x1FA1, U"\u1F69\u0399", U"\u1FA9"},
                                         {0x1FA2, U"\u1F6A\u0399", U"\u1FAA"},
                                         {0x1FA3, U"\u1F6B\u0399", U"\u1FAB"},
                                         {0x1FA4, U"\u1F6C\u0399", U"\u1FAC"},
                                         {0x1FA5, U"\u1F6D\u0399", U"\u1FAD"},
                                         {0x1FA6, U"\u1F6E\u0399", U"\u1FAE"},
                                         {0x1FA7, U"\u1F6F\u0399", U"\u1FAF"},
                                         {0x1FA8, U"\u1F68\u0399", U"\u1FA8"},
                                         {0x1FA9, U"\u1F69\u0399", U"\u1FA9"},
                                         {0x1FAA, U"\u1F6A\u0399", U"\u1FAA"},
                                         {0x1FAB, U"\u1F6B\u0399", U"\u1FAB"},
                                         {0x1FAC, U"\u1F6C\u0399", U"\u1FAC"},
                                         {0x1FAD, U"\u1F6D\u0399", U"\u1FAD"},
                                         {0x1FAE, U"\u1F6E\u0399", U"\u1FAE"},
                                         {0x1FAF, U"\u1F6F\u0399", U"\u1FAF"},
                                         {0x1FB2, U"\u1FBA\u0399", U"\u1FBA\u0345"},
                                         {0x1FB3, U"\u0391\u0399", U"\u1FBC"},
                                         {0x1FB4, U"\u0386\u0399", U"\u0386\u0345"},
                                         {0x1FB6, U"\u0391\u0342", U"\u0391\u0342"},
                                         {0x1FB7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
                                         {0x1FBC, U"\u0391\u0399", U"\u1FBC"},
                                         {0x1FC2, U"\u1FCA\u0399", U"\u1FCA\u0345"},
                                         {0x1FC3, U"\u0397\u0399", U"\u1FCC"},
                                         {0x1FC4, U"\u0389\u0399", U"\u0389\u0345"},
                                         {0x1FC6, U"\u0397\u0342", U"\u0397\u0342"},
                                         {0x1FC7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
                                         {0x1FCC, U"\u0397\u0399", U"\u1FCC"},
                                         {0x1FD2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
                                         {0x1FD3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
                                         {0x1FD6, U"\u0399\u0342", U"\u0399\u0342"},
                                         {0x1FD7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
                                         {0x1FE2, U"\u03A5\u0308\u0300", U"\u03A5\u0308\u0300"},
                                         {0x1FE3, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
                                         {0x1FE4, U"\u03A1\u0313", U"\u03A1\u0313"},
                                         {0x1FE6, U"\u03A5\u0342", U"\u03A5\u0342"},
                                         {0x1FE7, U"\u03A5\u0308\u0342", U"\u03A5\u0308\u0342"},
                                         {0x1FF2, U"\u1FFA\u0399", U"\u1FFA\u0345"},
                                         {0x1FF3, U"\u03A9\u0399", U"\u1FFC"},
                                         {0x1FF4, U"\u038F\u0399", U"\u038F\u0345"},
                                         {0x1FF6, U"\u03A9\u0342", U"\u03A9\u0342"},
                                         {0x1FF7, U"\u03A9\u0342\u0399", U"\u03A9\u0342\u0345"},
                                         {0x1FFC, U"\u03A9\u0399", U"\u1FFC"},
                                         {0xFB00, U"FF", U"Ff"},
                                         {0xFB01, U"FI", U"Fi"},
                                         {0xFB02, U"FL", U"Fl"},
                                         {0xFB03, U"FFI", U"Ffi"},
                                         {0xFB04, U"FFL", U"Ffl"},
                                         {0xFB05, U"ST", U"St"},
                                         {0xFB06, U"ST", U"St"},
                                         {0xFB13, U"\u0544\u0546", U"\u0544\u0576"},
                                         {0xFB14, U"\u0544\u0535", U"\u0544\u0565"},
                                         {0xFB15, U"\u0544\u053B", U"\u0544\u056B"},
                                         {0xFB16, U"\u054E\u0546", U"\u054E\u0576"},
                                         {0xFB17, U"\u0544\u053D", U"\u0544\u056D"}};
constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2, kCapitalIWithDot = 0x130;

const SpecialCase* special_case(char32_t c) {
  const auto found = std::ranges::lower_bound(kSpecialCases, c, {}, &SpecialCase::character);
  return found != std::end(kSpecialCases) && found->character == c ? found : nullptr;
}

std::u32string one(utf8proc_int32_t c) { return std::u32string(1, static_cast<char32_t>(c)); }

std::u32string upper_of(char32_t c) {
  if (const SpecialCase* special = special_case(c)) return special->upper;
  return one(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

std::u32string title_of(char32_t c) {
  if (const SpecialCase* special = special_case(c)) return special->title;
  return one(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

// Unicode properties that do not follow from the category.
enum class CaseProperty { kCased, kIgnorable, kUpper, kLower, kTitle };

bool has_property(char32_t c, CaseProperty property) {
  if (c < 0x80) {
    const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    switch (property) {
      case CaseProperty::kCased: return upper || lower;
      case CaseProperty::kUpper: return upper;
      case CaseProperty::kLower: return lower;
      case CaseProperty::kTitle: return false;
      case CaseProperty::kIgnorable:
        return std::u32string_view(U"'.:^`").find(c) != std::u32string_view::npos;
    }
  }
  static const Regex kRegexes[] = {
      Regex(R"(\A\p{Cased})", "case"), Regex(R"(\A\p{Case_Ignorable})", "case"),
      Regex(R"(\A\p{Uppercase})", "case"), Regex(R"(\A\p{Lowercase})", "case"),
      Regex(R"(\A\p{Lt})", "case")};
  std::string text;
  append_character(c, text);
  Regex::Match match;
  return kRegexes[static_cast<size_t>(property)].find(text, 0, match);
}

bool is_ascii_text(std::string_view s) {
  return std::ranges::all_of(s, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Characters of a text, each with its marks.
class CasedText {
 public:
  explicit CasedText(std::string_view s) {
    spend_bytes(4 * s.size());
    for (const std::string_view part : Characters(s)) {
      parts_.push_back(part);
      const size_t at = part.find_first_not_of(kMark);
      size_t next = at;
      codes_.push_back(at == std::string_view::npos ? U'\0' : next_character(part, next));
    }
  }
  size_t size() const { return codes_.size(); }
  char32_t operator[](size_t i) const { return codes_[i]; }
  std::string_view part(size_t i) const { return parts_[i]; }

  std::u32string lower_of(size_t i) const {
    const char32_t c = codes_[i];
    if (c == kCapitalIWithDot) return U"i\u0307";
    if (c == kSigma && is_final(i)) return one(kFinalSigma);
    return one(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
  // Appends part i with its character replaced, keeping its marks.
  void append(size_t i, const std::u32string& character, std::string& out) const {
    const std::string_view part = parts_[i];
    const size_t first = part.find_first_not_of(kMark), last = part.find_last_not_of(kMark);
    if (first == std::string_view::npos) return void(out += part);
    out += part.substr(0, first);
    for (const char32_t c : character) append_character(c, out);
    out += part.substr(last + 1);
  }

 private:
  // Whether a cased character precedes it and none follows, skipping ignorable ones.
  bool is_final(size_t i) const {
    const auto ignored = [&](size_t at) {
      return has_property(codes_[at], CaseProperty::kIgnorable);
    };
    size_t before = i;
    while (before > 0 && ignored(before - 1)) --before;
    if (before == 0 || !has_property(codes_[before - 1], CaseProperty::kCased)) return false;
    size_t after = i + 1;
    while (after < codes_.size() && ignored(after)) ++after;
    return after == codes_.size() || !has_property(codes_[after], CaseProperty::kCased);
  }

  std::vector<std::string_view> parts_;
  std::u32string codes_;
};

// Maps each character to form(text, i).
template <class Form>
std::string mapped(std::string_view s, Form&& form) {
  const CasedText text(s);
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < text.size(); ++i) text.append(i, form(text, i), out);
  return out;
}

std::string lower_part(std::string_view s) {
  if (is_ascii_text(s)) {
    spend_bytes(s.size());
    std::string out(s);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  return mapped(s, [](const CasedText& text, size_t i) { return text.lower_of(i); });
}

std::string upper_part(std::string_view s) {
  return mapped(s, [](const CasedText& text, size_t i) { return upper_of(text[i]); });
}

}  // namespace

std::string upper_case(const std::string& s) { return upper_part(s); }
std::string lower_text(const std::string& s) { return lower_part(s); }

std::string swapped_case(const std::string& s) {
  return mapped(s, [](const CasedText& text, size_t i) {
    if (has_property(text[i], CaseProperty::kUpper)) return text.lower_of(i);
    if (has_property(text[i], CaseProperty::kLower)) return upper_of(text[i]);
    return std::u32string(1, text[i]);
  });
}

std::string case_folded(const std::string& s) {
  const CaseFolds& folds = CaseFolds::get();
  return mapped(s, [&](const CasedText& text, size_t i) { return folds.fold(text[i]); });
}

std::string title_case(const std::string& s) {
  bool inside = false;
  return mapped(s, [&](const CasedText& text, size_t i) {
    const bool follows = inside;
    inside = has_property(text[i], CaseProperty::kCased);
    return follows ? text.lower_of(i) : title_of(text[i]);
  });
}

std::string words_capitalized(const std::string& s) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = next_place(word, 0);
    out += upper_part(std::string_view(word).substr(0, first));
    out += lower_part(std::string_view(word).substr(first));
    word.clear();
  };
  for (const std::string_view c : Characters(s)) {
    if (!separates_words(c)) {
      word += c;
      continue;
    }
    flush();
    out += c;
  }
  flush();
  return out;
}

std::string capitalized(const std::string& s) {
  return mapped(s, [](const CasedText& text, size_t i) {
    return i == 0 ? title_of(text[i]) : text.lower_of(i);
  });
}

bool is_cased(const std::string& s, const std::string& kind) {
  const CasedText text(s);
  bool any = false, inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool title = has_property(text[i], CaseProperty::kTitle),
               upper = has_property(text[i], CaseProperty::kUpper),
               lower = has_property(text[i], CaseProperty::kLower);
    if (kind == "isupper" && (lower || title)) return false;
    if (kind == "islower" && (upper || title)) return false;
    if (kind == "istitle" && ((inside && (upper || title)) || (!inside && lower))) return false;
    inside = upper || lower || title;
    any |= kind == "istitle" ? inside : kind == "isupper" ? upper : lower;
  }
  return any;
}

}  // namespace trireme::jinja
