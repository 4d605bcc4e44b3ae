// Strings and ids of a model's tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

inline constexpr int64_t kMaxTokenBytes = 4096;
inline constexpr int64_t kMaxVocabulary = 1 << 24;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

// Vocabulary; ids need not be dense. -1: no such token.
class Vocabulary {
 public:
  // Refuses ids and strings above the limits, and an id for two strings. `what` is the prefix of
  // messages.
  void add(const std::string& token, int64_t id, const std::string& what);
  int32_t find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  // "" for ids in a gap.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  int64_t size() const { return std::ssize(tokens_); }  // the largest id plus 1
  int64_t longest() const { return longest_; }          // bytes of the longest token

 private:
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  int64_t longest_ = 0;
};

// Ids of the tokens "<0x00>" ... "<0xFF>"; empty if one is missing.
std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

// --- the alphabet of ByteLevel ---
//
// Each byte is spelled as a character: the visible ones of Latin-1 as themselves, the others from
// U+0100 on.
std::string byte_level_bytes(std::string_view spelled, bool& all_in_alphabet);

}  // namespace trireme
