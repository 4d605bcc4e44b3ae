#include "engine/text/case_fold.h"

#include <utf8proc.h>

#include <algorithm>

namespace trireme {
namespace {

constexpr char32_t kEndOfCasedPlanes = 0x20000;

std::u32string unicode_fold(char32_t c) {
  utf8proc_int32_t codes[8];
  int boundary = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), codes, 8,
                                             UTF8PROC_CASEFOLD, &boundary);
  std::u32string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i) out += static_cast<char32_t>(codes[i]);
  return out;
}

}  // namespace

const CaseFolds& CaseFolds::get() {
  static const CaseFolds kFolds;
  return kFolds;
}

CaseFolds::CaseFolds() {
  for (char32_t c = 0; c < kEndOfCasedPlanes; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::u32string to = unicode_fold(c);
    if (to.empty() || to == std::u32string(1, c)) continue;
    if (to.size() == 1)
      singles_[to[0]] += c;
    else
      sequences_[to] += c;
    all_ += c;
    folds_.emplace(c, std::move(to));
  }
  for (const auto& [to, from] : singles_) all_ += to;
  std::ranges::sort(all_);
}

std::u32string CaseFolds::fold(char32_t c) const {
  const auto found = folds_.find(c);
  return found == folds_.end() ? std::u32string(1, c) : found->second;
}

std::u32string CaseFolds::equals(char32_t c) const {
  const std::u32string to = fold(c);
  if (to.size() > 1) return sequences_.at(to);
  const auto found = singles_.find(to[0]);
  return found == singles_.end() ? to : to + found->second;
}

const std::u32string& CaseFolds::folding_to(const std::u32string& sequence) const {
  static const std::u32string kNone;
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? kNone : found->second;
}

}  // namespace trireme
