#include "engine/text/jinja/text_tools.h"

#include <algorithm>
#include <climits>

#include "engine/text/unicode.h"

namespace trireme::jinja {
namespace {

// The characters of a text, as parts of it.
std::vector<std::string_view> characters(std::string_view s) {
  spend_bytes(s.size());
  std::vector<std::string_view> out;
  for (size_t at = 0; at < s.size();) {
    const size_t bytes = character_bytes(s[at]);
    out.push_back(s.substr(at, bytes));
    at += bytes;
  }
  return out;
}

// An element costs more than its bytes.
void add(List& out, std::string text) {
  spend(1);
  out.emplace_back(std::move(text));
}

char32_t code_of(std::string_view character) {
  size_t at = 0;
  return next_character(character, at);
}

bool is_blank(std::string_view character) {
  const char32_t c = code_of(character);
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);  // as Python has it
}

List split_at_blanks(const std::string& s, int64_t most, bool from_right) {
  std::vector<std::string_view> all = characters(s);
  List out;
  const auto rest_of = [&](size_t begin, size_t end) {
    std::string text;
    for (size_t i = begin; i < end; ++i) text += all[i];
    return text;
  };
  if (!from_right) {
    for (size_t i = 0; i < all.size();) {
      if (is_blank(all[i])) {
        ++i;
        continue;
      }
      if (most >= 0 && std::ssize(out) == most) {
        add(out, stripped(rest_of(i, all.size()), nullptr, false, true));
        break;
      }
      const size_t begin = i;
      while (i < all.size() && !is_blank(all[i])) ++i;
      add(out, rest_of(begin, i));
    }
    return out;
  }
  for (size_t end = all.size(); end > 0;) {
    if (is_blank(all[end - 1])) {
      --end;
      continue;
    }
    if (most >= 0 && std::ssize(out) == most) {
      add(out, stripped(rest_of(0, end), nullptr, true, false));
      break;
    }
    size_t begin = end;
    while (begin > 0 && !is_blank(all[begin - 1])) --begin;
    add(out, rest_of(begin, end));
    end = begin;
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace

std::string stripped(const std::string& s, const std::string* chars, bool left, bool right) {
  const std::vector<std::string_view> all = characters(s);
  const std::vector<std::string_view> gone =
      chars != nullptr ? characters(*chars) : std::vector<std::string_view>();
  const auto goes = [&](std::string_view c) {
    return chars == nullptr ? is_blank(c) : std::ranges::find(gone, c) != gone.end();
  };
  size_t begin = 0, end = all.size();
  while (left && begin < end && goes(all[begin])) ++begin;
  while (right && end > begin && goes(all[end - 1])) --end;
  if (begin == end) return "";
  const char* const first = all[begin].data();
  return {first, all[end - 1].data() + all[end - 1].size()};
}

std::string upper_case(const std::string& s) { return trireme::upper_case(s); }
std::string lower_text(const std::string& s) { return lower_case(s); }

std::string title_case(const std::string& s) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : characters(s)) {
    const bool letter = is_letter(code_of(c));
    out += !letter ? std::string(c) : inside ? lower_case(c) : trireme::upper_case(c);
    inside = letter;
  }
  return out;
}

std::string words_capitalized(const std::string& s) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : characters(s)) {
    const bool cuts = is_blank(c) || (c.size() == 1 && std::string_view("-({[<").find(c[0]) !=
                                                           std::string_view::npos);
    out += cuts ? std::string(c) : inside ? lower_case(c) : trireme::upper_case(c);
    inside = !cuts;
  }
  return out;
}

std::string capitalized(const std::string& s) {
  if (s.empty()) return s;
  const size_t bytes = character_bytes(s[0]);
  return trireme::upper_case(std::string_view(s).substr(0, bytes)) +
         lower_case(std::string_view(s).substr(bytes));
}

List lines_of(const std::string& s) {
  List out;
  std::string line;
  bool open = false;
  for (const std::string_view c : characters(s)) {
    const char32_t code = code_of(c);
    const bool ends = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
                      code == 0x85 || code == 0x2028 || code == 0x2029;
    if (code == '\n' && c.data() > s.data() && c.data()[-1] == '\r') continue;  // of "\r\n"
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
  if (separator->empty()) fail("split wants a separator that is not empty");
  List out;
  if (!from_right) {
    size_t at = 0;
    for (size_t found; (most < 0 || std::ssize(out) < most) &&
                       (found = s.find(*separator, at)) != std::string::npos;
         at = found + separator->size())
      add(out, s.substr(at, found - at));
    add(out, s.substr(at));
    return out;
  }
  size_t end = s.size();
  while ((most < 0 || std::ssize(out) < most) && end >= separator->size()) {
    const size_t found = s.rfind(*separator, end - separator->size());
    if (found == std::string::npos) break;
    add(out, s.substr(found + separator->size(), end - found - separator->size()));
    end = found;
  }
  add(out, s.substr(0, end));
  std::ranges::reverse(out);
  return out;
}

std::string replaced_text(Renderer& r, const std::string& s, const std::string& from,
                          const std::string& to, int64_t most) {
  std::string out;
  if (from.empty()) {  // before every character, and at the end
    for (const std::string_view c : characters(s)) {
      if (most != 0) out += to, --most;
      out += c;
      r.check_size(std::ssize(out));
    }
    return most != 0 ? out + to : out;
  }
  size_t at = 0;
  for (size_t found; most != 0 && (found = s.find(from, at)) != std::string::npos;
       at = found + from.size(), --most) {
    out.append(s, at, found - at);
    out += to;
    spend_bytes(to.size());
    r.check_size(std::ssize(out));
  }
  return out.append(s, at);
}

int64_t count_of(const std::string& s, const std::string& part) {
  if (part.empty()) return length_of(s) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = s.find(part, at)) != std::string::npos; at += part.size()) ++count;
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
  for (const std::string_view c : characters(s)) {
    const bool word = is_word(code_of(c));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return words;
}

bool is_all(const std::string& s, const std::string& kind) {
  bool cased = false;
  for (const std::string_view part : characters(s)) {
    const char32_t c = code_of(part);
    const bool digit = c >= '0' && c <= '9';
    if ((kind == "isdigit" || kind == "isdecimal" || kind == "isnumeric") && !digit) return false;
    if (kind == "isascii" && c >= 0x80) return false;
    if (kind == "isspace" && !is_blank(part)) return false;
    if (kind == "isalpha" && !is_letter(c)) return false;
    if (kind == "isalnum" && !is_letter(c) && !digit) return false;
    if (kind == "isupper" && is_lower(c)) return false;
    if (kind == "islower" && is_upper(c)) return false;
    cased |= is_upper(c) || is_lower(c);
  }
  if (kind == "isascii") return true;
  return kind == "isupper" || kind == "islower" ? cased : !s.empty();
}

}  // namespace trireme::jinja
