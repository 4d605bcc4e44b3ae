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
inline constexpr int64_t kMaxVocabulary = 1 << 24;  // ids are below

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

// Map between tokens and ids; ids need not be dense. find() returns -1 if there is no such token.
class Vocabulary {
 public:
  // Adds a token. InputError, prefixed by `what`, for an id or a string outside the limits, an
  // empty string, or a second string for an id. Of a repeated string the last id counts.
  void add(const std::string& token, int64_t id, const std::string& what);
  int32_t find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  // Returns the token of an id in [0, size()); "" for ids in a gap.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  int64_t size() const { return std::ssize(tokens_); }  // the largest id plus 1
  int64_t longest() const { return longest_; }          // bytes of the longest token

 private:
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  int64_t longest_ = 0;
};

// Returns the ids of the tokens "<0x00>" ... "<0xFF>"; empty if one is missing.
std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

// --- the alphabet of ByteLevel ---
//
// Each byte is spelled as a character: the visible ones of Latin-1 as themselves, the others from
// U+0100 on. Returns the bytes of `spelled`; if a character is not in the alphabet, `spelled`
// unchanged. Sets all_in_alphabet to whether all characters are.
std::string byte_level_bytes(std::string_view spelled, bool& all_in_alphabet);

}  // namespace trireme
