#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/regex_class.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "engine/core/error.h"
#include "engine/text/case_fold.h"
#include "engine/text/unicode.h"

namespace trireme {
namespace {

// Names of general categories in \p{...}; PCRE2 knows only the short ones.
const std::map<std::string, std::string>& category_names() {
  static const std::map<std::string, std::string> kNames = {{"c", "C"},
                                                            {"other", "C"},
                                                            {"cc", "Cc"},
                                                            {"control", "Cc"},
                                                            {"cf", "Cf"},
                                                            {"format", "Cf"},
                                                            {"cn", "Cn"},
                                                            {"unassigned", "Cn"},
                                                            {"co", "Co"},
                                                            {"privateuse", "Co"},
                                                            {"cs", "Cs"},
                                                            {"surrogate", "Cs"},
                                                            {"l", "L"},
                                                            {"letter", "L"},
                                                            {"lc", "L&"},
                                                            {"casedletter", "L&"},
                                                            {"ll", "Ll"},
                                                            {"lowercaseletter", "Ll"},
                                                            {"lm", "Lm"},
                                                            {"modifierletter", "Lm"},
                                                            {"lo", "Lo"},
                                                            {"otherletter", "Lo"},
                                                            {"lt", "Lt"},
                                                            {"titlecaseletter", "Lt"},
                                                            {"lu", "Lu"},
                                                            {"uppercaseletter", "Lu"},
                                                            {"m", "M"},
                                                            {"mark", "M"},
                                                            {"combiningmark", "M"},
                                                            {"mc", "Mc"},
                                                            {"spacingmark", "Mc"},
                                                            {"me", "Me"},
                                                            {"enclosingmark", "Me"},
                                                            {"mn", "Mn"},
                                                            {"nonspacingmark", "Mn"},
                                                            {"n", "N"},
                                                            {"number", "N"},
                                                            {"nd", "Nd"},
                                                            {"decimalnumber", "Nd"},
                                                            {"nl", "Nl"},
                                                            {"letternumber", "Nl"},
                                                            {"no", "No"},
                                                            {"othernumber", "No"},
                                                            {"p", "P"},
                                                            {"punct", "P"},
                                                            {"punctuation", "P"},
                                                            {"pc", "Pc"},
                                                            {"connectorpunctuation", "Pc"},
                                                            {"pd", "Pd"},
                                                            {"dashpunctuation", "Pd"},
                                                            {"pe", "Pe"},
                                                            {"closepunctuation", "Pe"},
                                                            {"pf", "Pf"},
                                                            {"finalpunctuation", "Pf"},
                                                            {"pi", "Pi"},
                                                            {"initialpunctuation", "Pi"},
                                                            {"po", "Po"},
                                                            {"otherpunctuation", "Po"},
                                                            {"ps", "Ps"},
                                                            {"openpunctuation", "Ps"},
                                                            {"s", "S"},
                                                            {"symbol", "S"},
                                                            {"sc", "Sc"},
                                                            {"currencysymbol", "Sc"},
                                                            {"sk", "Sk"},
                                                            {"modifiersymbol", "Sk"},
                                                            {"sm", "Sm"},
                                                            {"mathsymbol", "Sm"},
                                                            {"so", "So"},
                                                            {"othersymbol", "So"},
                                                            {"z", "Z"},
                                                            {"separator", "Z"},
                                                            {"zl", "Zl"},
                                                            {"lineseparator", "Zl"},
                                                            {"zp", "Zp"},
                                                            {"paragraphseparator", "Zp"},
                                                            {"zs", "Zs"},
                                                            {"spaceseparator", "Zs"},
                                                            {"any", "Any"}};
  return kNames;
}

std::shared_ptr<pcre2_code> compiled_fragment(const std::string& fragment) {
  int error = 0;
  size_t at = 0;
  return {pcre2_compile(reinterpret_cast<PCRE2_SPTR>(fragment.data()), fragment.size(),
                        PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr),
          [](pcre2_code* code) { pcre2_code_free(code); }};
}

bool is_simple(const CharacterSet& set) { return set.sets.empty() && set.intersected.empty(); }
bool is_empty(const CharacterSet& set) { return set.ranges.empty() && set.properties.empty(); }

// Members of a set, which is not negated, among the characters of `from`.
std::set<char32_t> members_among(const CharacterSet& set, const std::u32string& from) {
  std::set<char32_t> out;
  if (is_simple(set) && set.properties.empty()) {
    for (const char32_t c : from)
      if (std::ranges::any_of(set.ranges,
                              [c](const auto& r) { return r.first <= c && c <= r.second; }))
        out.insert(c);
    return out;
  }
  const std::string fragment = class_fragment(set);
  const auto code = compiled_fragment(concat("\\A(?:", fragment, ")\\z"));
  TRIREME_CHECK(code != nullptr, "a class is invalid: ", fragment);
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  for (const char32_t c : from) {
    std::string text;
    append_character(c, text);
    if (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                    PCRE2_NO_UTF_CHECK, data.get(), nullptr) > 0)
      out.insert(c);
  }
  return out;
}

// Lower case without spaces, hyphens and underscores, for comparing names.
std::string loose_name(const std::string& name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_')
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string brackets(const CharacterSet& set, bool negated) {
  if (set.ranges.empty() && set.properties.size() == 1) {
    std::string one = set.properties[0];
    if (negated) one[1] = one[1] == 'p' ? 'P' : 'p';
    return one;
  }
  std::string out = negated ? "[^" : "[";
  for (const auto& [first, last] : set.ranges)
    out += first == last ? code_escape(first) : concat(code_escape(first), '-', code_escape(last));
  for (const std::string& property : set.properties) out += property;
  return out += ']';
}

// Fragment of the union only.
std::string union_fragment(const CharacterSet& set) {
  if (set.sets.empty()) return is_empty(set) ? "(?!)" : brackets(set, false);
  std::string out = is_empty(set) ? "" : brackets(set, false);
  for (const CharacterSet& inner : set.sets)
    out += concat(out.empty() ? "" : "|", class_fragment(inner));
  return concat("(?:", out, ')');
}

}  // namespace

bool posix_set(const std::string& name, CharacterSet& out) {
  if (name == "alnum") return out.properties = {"\\p{Alphabetic}", "\\p{Nd}"}, true;
  if (name == "alpha") return out.properties = {"\\p{Alphabetic}"}, true;
  if (name == "blank") return out.add('\t'), out.properties = {"\\p{Zs}"}, true;
  if (name == "cntrl") return out.properties = {"\\p{Cc}"}, true;
  if (name == "digit") return out.properties = {"\\p{Nd}"}, true;
  if (name == "lower") return out.properties = {"\\p{Lowercase}"}, true;
  if (name == "punct") return out.properties = {"\\p{P}", "\\p{S}"}, true;
  if (name == "space") return out.properties = {"\\p{White_Space}"}, true;
  if (name == "upper") return out.properties = {"\\p{Uppercase}"}, true;
  if (name == "ascii") return out.ranges = {{0, 0x7F}}, true;
  if (name == "xdigit") return out.ranges = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, true;
  if (name == "word")
    return out.properties = {"\\p{Alphabetic}", "\\p{M}", "\\p{Nd}", "\\p{Pc}"}, true;
  if (name == "graph" || name == "print") {
    CharacterSet graph;
    graph.properties = {"\\p{White_Space}", "\\p{Cc}", "\\p{Cn}", "\\p{Cs}"};
    graph.negated = true;
    out.sets = {graph};
    if (name == "print") out.properties = {"\\p{Zs}"};
    return true;
  }
  return false;
}

std::string code_escape(char32_t c) {
  char text[16];
  std::snprintf(text, sizeof text, "\\x{%X}", static_cast<unsigned>(c));
  return text;
}

std::string class_of(const std::u32string& characters) {
  CharacterSet set;
  for (const char32_t c : characters) set.add(c);
  return class_fragment(set);
}

void CharacterSet::add(CharacterSet set) {
  if (set.negated && is_simple(set) && set.ranges.empty() && set.properties.size() == 1) {
    set.properties[0][1] = set.properties[0][1] == 'p' ? 'P' : 'p';
    set.negated = false;
  }
  if (set.negated || !set.intersected.empty()) return sets.push_back(std::move(set));
  ranges.insert(ranges.end(), set.ranges.begin(), set.ranges.end());
  properties.insert(properties.end(), set.properties.begin(), set.properties.end());
  for (CharacterSet& inner : set.sets) sets.push_back(std::move(inner));
}

CharacterSet property_set(const std::string& name, bool in_class, const std::string& what) {
  const std::string loose = loose_name(name);
  CharacterSet set;
  // Extensions of PCRE2 that Oniguruma lacks are not accepted.
  static const std::set<std::string> kOwn = {"xan", "xps", "xsp", "xuc", "xwd", "l&", ""};
  if (const auto found = category_names().find(loose); found != category_names().end()) {
    set.properties = {concat("\\p{", found->second, '}')};
    return set;
  }
  if (loose == "assigned") return set.properties = {"\\P{Cn}"}, set;
  if (posix_set(loose, set)) {
    if (loose == "word" && !in_class) set.ranges = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};
    return set;
  }
  const bool is_name = std::ranges::all_of(
      loose, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  // A script means sc (the script itself), not scx (every text that uses its characters).
  if (is_name && !kOwn.contains(loose))
    for (const std::string& property : {concat("\\p{sc:", loose, '}'), concat("\\p{", loose, '}')})
      if (compiled_fragment(property) != nullptr) {
        set.properties = {property};
        return set;
      }
  fail_input(what, ": the property \\p{", name,
             "} is not supported; supported: general categories, scripts, ",
             "POSIX classes and binary properties of Unicode");
}

std::string class_fragment(const CharacterSet& set) {
  if (is_simple(set) && !is_empty(set)) return brackets(set, set.negated);
  std::string out;
  for (const CharacterSet& other : set.intersected)
    out += concat("(?=", class_fragment(other), ')');
  out += union_fragment(set);
  if (set.negated) return concat("(?:(?!", out, ")(?s:.))");
  return concat("(?:", out, ')');
}

std::string folded_class_fragment(const CharacterSet& set, bool sequences) {
  const CaseFolds& folds = CaseFolds::get();
  CharacterSet raw = set;
  raw.negated = false;
  const std::set<char32_t> members = members_among(raw, folds.all());
  CharacterSet added;
  for (const char32_t c : members)
    for (const char32_t other : folds.equals(c))
      if (!members.contains(other)) added.add(other);
  CharacterSet folded;
  folded.add(raw);
  folded.add(added);
  folded.negated = set.negated;
  std::string out = class_fragment(folded);
  if (set.negated || !sequences) return out;
  for (const auto& [to, from] : folds.sequences()) {
    if (std::ranges::none_of(from, [&](char32_t c) { return members.contains(c); })) continue;
    out += '|';
    for (const char32_t c : to) out += class_of(folds.equals(c));
  }
  return concat("(?:", out, ')');
}

}  // namespace trireme
