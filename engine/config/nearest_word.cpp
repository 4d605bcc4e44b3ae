#include "engine/config/nearest_word.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>

namespace trireme {
namespace {

// Longer names are not misspelled words; the limit keeps the tables below small.
constexpr size_t kLongest = 128;

std::string plain(std::string name) {
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> parts_of(const std::string& word) {
  std::vector<std::string> parts(1);
  for (const char c : plain(word)) {
    if (c != '_' && c != '.')
      parts.back() += c;
    else if (!parts.back().empty())
      parts.emplace_back();
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::string initials_of(const std::vector<std::string>& parts) {
  std::string initials;
  for (const std::string& part : parts) initials += part.front();
  return initials;
}

// Whether `shorter` is `whole` with characters left out, but not the first one.
bool shortens(const std::string& shorter, const std::string& whole) {
  if (shorter.front() != whole.front()) return false;
  size_t at = 0;
  for (const char c : whole)
    if (at < shorter.size() && shorter[at] == c) ++at;
  return at == shorter.size();
}

// Whether each part abbreviates a part of the whole, in order.
bool all_shorten(const std::vector<std::string>& parts, const std::vector<std::string>& whole) {
  size_t at = 0;
  for (const std::string& part : whole)
    if (at < parts.size() && shortens(parts[at], part)) ++at;
  return at == parts.size();
}

std::string nearest_by_edits(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : known)
    if (const int distance = edit_distance(word, name); distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  return best;
}

}  // namespace

int edit_distance(const std::string& first, const std::string& second) {
  if (first.size() > kLongest || second.size() > kLongest) return static_cast<int>(kLongest);
  const std::string a = plain(first), b = plain(second);
  const size_t columns = b.size() + 1;
  std::vector<int> before(columns), above(columns), row(columns);  // rows i-2, i-1 and i
  std::iota(above.begin(), above.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above.back();
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() > kLongest) return "";
  if (std::string typed = nearest_by_edits(word, known); !typed.empty()) return typed;
  const std::vector<std::string> parts = parts_of(word);
  if (parts.empty()) return "";
  std::string best;
  const auto difference = [&](const std::string& name) {
    return std::abs(std::ssize(name) - std::ssize(word));
  };
  const auto take_nearer = [&](const std::string& name) {
    if (best.empty() || difference(name) < difference(best)) best = name;
  };
  if (parts.size() == 1 && parts[0].size() > 1)
    for (const std::string& name : known)
      if (initials_of(parts_of(name)) == parts[0]) take_nearer(name);
  if (!best.empty()) return best;
  for (const std::string& name : known) {
    const std::vector<std::string> whole = parts_of(name);
    const bool long_enough = word.size() > 3 && name.size() > 3;
    if (long_enough && !whole.empty() && (all_shorten(parts, whole) || all_shorten(whole, parts)))
      take_nearer(name);
  }
  return best;
}

}  // namespace trireme
