#include "engine/text/jinja/text_tools.h"

#include <algorithm>
#include <climits>

#include "engine/text/jinja/characters.h"
#include "engine/text/unicode.h"

namespace trireme::jinja {
namespace {

// An element costs more than its bytes: one extra step.
void add(List& out, std::string text) {
  spend(1);
  out.emplace_back(std::move(text));
}

char32_t code_of(std::string_view character) {
  size_t at = character.find_first_not_of(kMark);
  return at == std::string_view::npos ? U'\0' : next_character(character, at);
}

bool is_blank(std::string_view character) {
  const char32_t c = code_of(character);
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);  // as in Python
}

// Digits that are not decimal, such as circled ones and superscripts (Numeric_Type=Digit).
bool is_single_digit(char32_t c) {
  constexpr char32_t kRanges[][2] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::ranges::any_of(kRanges, [c](const auto& r) { return r[0] <= c && c <= r[1]; });
}

// Start of the character that ends at `end`, with its marks.
size_t place_before(const std::string& s, size_t end) {
  do --end;
  while (end > 0 && ((static_cast<unsigned char>(s[end]) & 0xC0) == 0x80 || s[end] == kMark));
  return end == s.find_first_not_of(kMark) ? 0 : end;
}

List split_at_blanks(const std::string& s, int64_t most, bool from_right) {
  spend_bytes(s.size());
  List out;
  const auto blank_at = [&](size_t at) { return is_blank(std::string_view(s).substr(at)); };
  if (!from_right) {
    for (size_t at = 0; at < s.size();) {
      if (blank_at(at)) {
        at = next_place(s, at);
        continue;
      }
      if (most >= 0 && std::ssize(out) == most) {
        add(out, stripped(s.substr(at), nullptr, false, true));
        break;
      }
      const size_t begin = at;
      while (at < s.size() && !blank_at(at)) at = next_place(s, at);
      add(out, s.substr(begin, at - begin));
    }
    return out;
  }
  for (size_t end = s.size(); end > 0;) {
    if (const size_t before = place_before(s, end); blank_at(before)) {
      end = before;
      continue;
    }
    if (most >= 0 && std::ssize(out) == most) {
      add(out, stripped(s.substr(0, end), nullptr, true, false));
      break;
    }
    size_t begin = end;
    for (size_t at = begin; at > 0 && !blank_at(at = place_before(s, at));) begin = at;
    add(out, s.substr(begin, end - begin));
    end = begin;
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace

std::string stripped(const std::string& s, const std::string* chars, bool left, bool right) {
  spend_bytes(s.size());
  std::vector<char32_t> gone;
  if (chars != nullptr)
    for (const std::string_view c : Characters(*chars)) gone.push_back(code_of(c));
  std::ranges::sort(gone);
  const auto goes = [&](size_t at) {
    const std::string_view c = std::string_view(s).substr(at);
    return chars == nullptr ? is_blank(c) : std::ranges::binary_search(gone, code_of(c));
  };
  size_t begin = 0, end = s.size();
  while (left && begin < end && goes(begin)) begin = next_place(s, begin);
  for (size_t at = end; right && at > begin && goes(at = place_before(s, at));) end = at;
  return s.substr(begin, end - begin);
}

bool separates_words(std::string_view character) {
  return is_blank(character) ||
         (character.size() == 1 &&
          std::string_view("-({[<").find(character[0]) != std::string_view::npos);
}

List lines_of(const std::string& s) {
  List out;
  std::string line;
  bool open = false;
  for (const std::string_view c : Characters(s)) {
    const char32_t code = code_of(c);
    const bool ends = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
                      code == 0x85 || code == 0x2028 || code == 0x2029;
    if (code == '\n' && c.data() > s.data() && c.data()[-1] == '\r')
      continue;  // second character
                 // of "\r\n"
    if (!ends) {
      line += c;
      open = true;
      continue;
    }
    add(out, std::move(line));
    line.clear();
    open = false;
  }
  if (open) add(out, std::move(line));
  return out;
}

List split_text(const std::string& s, const std::string* separator, int64_t most, bool from_right) {
  if (separator == nullptr) return split_at_blanks(s, most, from_right);
  const std::string by = without_marks(*separator);
  if (by.empty()) fail("split expects a separator that is not empty");
  const Search search(s);
  List out;
  const auto may_cut = [&] { return most < 0 || std::ssize(out) < most; };
  if (!from_right) {
    size_t at = 0;
    for (size_t found; may_cut() && (found = search.find(by, at)) != std::string::npos;
         at = found + by.size())
      add(out, search.cut(at, found, at > 0 ? by.size() : 0));
    add(out, search.cut(at, std::string::npos, at > 0 ? by.size() : 0));
    return out;
  }
  size_t end = search.plain().size();
  for (size_t found; may_cut() && (found = search.find_last(by, end)) != std::string::npos;
       end = found)
    add(out, search.cut(found + by.size(), end, by.size()));
  add(out, search.cut(0, end));
  std::ranges::reverse(out);
  return out;
}

std::string replaced_text(Renderer& r, const std::string& s, const std::string& from,
                          const std::string& to, int64_t most) {
  std::string out;
  const std::string sought = without_marks(from);
  if (sought.empty()) {  // before every character, and at the end
    for (const std::string_view c : Characters(s)) {
      if (most != 0) out += to, --most;
      out += c;
      r.check_size(std::ssize(out));
    }
    return most != 0 ? out + to : out;
  }
  const Search search(s);
  size_t at = 0;
  for (size_t found; most != 0 && (found = search.find(sought, at)) != std::string::npos;
       at = found + sought.size(), --most) {
    out += search.cut(at, found, at > 0 ? sought.size() : 0);
    out += to;
    spend_bytes(to.size());
    r.check_size(std::ssize(out));
  }
  return out += search.cut(at, std::string::npos, at > 0 ? sought.size() : 0);
}

int64_t count_of(const std::string& s, const std::string& part) {
  const std::string sought = without_marks(part);
  if (sought.empty()) return length_of(s) + 1;
  const Search search(s);
  int64_t count = 0;
  for (size_t at = 0; (at = search.find(sought, at)) != std::string::npos; at += sought.size())
    ++count;
  return count;
}

std::string joined_text(Renderer& r, const List& items, const std::string& between) {
  std::string out;
  spend(std::ssize(items));
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    spend_bytes(between.size());
    out += text_of(items[i]);
    r.check_size(std::ssize(out));
  }
  return out;
}

std::string padded(Renderer& r, const std::string& s, int64_t width, const std::string& fill,
                   char align, bool as_center) {
  const int64_t missing = width - length_of(s);
  if (missing <= 0) return s;
  r.check_size(std::min(missing, r.limits.output + 1) * std::ssize(fill) + std::ssize(s));
  spend_bytes(static_cast<size_t>(missing) * fill.size());
  int64_t before = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  if (as_center) before += missing & width & 1;
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += s;
  for (int64_t i = before; i < missing; ++i) out += fill;
  return out;
}

int64_t words_in(const std::string& s) {
  int64_t words = 0;
  bool inside = false;
  for (const std::string_view c : Characters(s)) {
    const char32_t code = code_of(c);
    const bool word = is_letter(code) || is_numeric(code) || code == '_';  // Python's \w
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return words;
}

bool is_all(const std::string& s, const std::string& kind) {
  for (const std::string_view part : Characters(s)) {
    const char32_t c = code_of(part);
    if (kind == "isdecimal" && !is_decimal_digit(c)) return false;
    if (kind == "isdigit" && !is_decimal_digit(c) && !is_single_digit(c)) return false;
    if (kind == "isnumeric" && !is_numeric(c)) return false;
    if (kind == "isascii" && c >= 0x80) return false;
    if (kind == "isspace" && !is_blank(part)) return false;
    if (kind == "isalpha" && !is_letter(c)) return false;
    if (kind == "isalnum" && !is_letter(c) && !is_numeric(c)) return false;
  }
  return kind == "isascii" || length_of(s) > 0;
}

}  // namespace trireme::jinja
