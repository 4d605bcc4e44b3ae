#include "engine/text/jinja/characters.h"

#include <algorithm>
#include <cstring>

#include "engine/text/jinja/budget.h"
#include "engine/text/unicode.h"

namespace trireme::jinja {

size_t next_place(std::string_view text, size_t at) {
  while (at < text.size() && text[at] == kMark) ++at;
  if (at < text.size()) at += character_bytes(text[at]);
  while (at < text.size() && text[at] == kMark) ++at;
  return std::min(at, text.size());
}

bool has_marks(std::string_view text) { return text.find(kMark) != std::string_view::npos; }

std::string without_marks(std::string_view text) {
  std::string out(text);
  std::erase(out, kMark);
  return out;
}

Characters::Characters(std::string_view text) : text_(text) { spend_bytes(text.size()); }

Search::Search(const std::string& text) : text_(text) {
  spend_bytes(text.size());
  size_t copied = 0;
  for (size_t at; (at = text.find(kMark, copied)) != std::string::npos; copied = at + 1) {
    plain_.append(text, copied, at - copied);
    marks_.push_back(plain_.size());
  }
  if (!marks_.empty()) plain_.append(text, copied);
}

size_t Search::find(std::string_view part, size_t from) const {
  const std::string& text = plain();
  if (part.empty() || from >= text.size()) return text.find(part, from);
  // Linear, while std::string::find() may take the product of both lengths.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// Knuth, Morris and Pratt 1977, searching from the right.
size_t Search::find_last(std::string_view part, size_t until) const {
  const std::string& text = plain();
  until = std::min(until, text.size());
  if (part.size() > until) return std::string::npos;
  if (part.empty()) return until;
  const size_t n = part.size();
  const auto at = [&](size_t i) { return part[n - 1 - i]; };
  // Prefix function (Knuth-Morris-Pratt) of the reversed part.
  std::vector<uint32_t> shorter(n, 0);
  for (size_t i = 1, k = 0; i < n; ++i) {
    while (k > 0 && at(i) != at(k)) k = shorter[k - 1];
    shorter[i] = static_cast<uint32_t>(k += at(i) == at(k) ? 1 : 0);
  }
  for (size_t i = until, k = 0; i > 0; --i) {
    while (k > 0 && text[i - 1] != at(k)) k = shorter[k - 1];
    if (text[i - 1] == at(k)) ++k;
    if (k == n) return i - 1;
  }
  return std::string::npos;
}

size_t Search::marked(size_t at) const {
  return at + static_cast<size_t>(std::ranges::upper_bound(marks_, at) - marks_.begin());
}

std::string Search::cut(size_t begin, size_t end, size_t removed) const {
  end = std::min(end, plain().size());
  // The marks at the start belong to the previous character.
  const size_t first = begin == 0 ? 0 : marked(begin), last = marked(end);
  std::string out = text_.substr(first, last - first);
  const auto mark = std::ranges::upper_bound(marks_, begin - removed);
  if (removed > 0 && mark != marks_.end() && *mark <= begin) out.insert(0, 1, kMark);
  return out;
}

}  // namespace trireme::jinja
