#include "engine/text/vocabulary.h"

#include <algorithm>
#include <array>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/unicode.h"

namespace trireme {

void Vocabulary::add(const std::string& token, int64_t id, const std::string& what) {
  if (id < 0 || id >= kMaxVocabulary)
    fail_input(what, ": the id ", id, " of \"", token.substr(0, 60), "\" is not in the range 0 to ",
               kMaxVocabulary - 1);
  if (token.empty() || std::ssize(token) > kMaxTokenBytes)
    fail_input(what, ": the token with id ", id, " has ", token.size(), " bytes, expected 1 to ",
               kMaxTokenBytes);
  const auto at = static_cast<size_t>(id);
  if (at >= tokens_.size()) tokens_.resize(at + 1);
  if (!tokens_[at].empty() && tokens_[at] != token)
    fail_input(what, ": the id ", id, " is given to \"", tokens_[at].substr(0, 60), "\" and to \"",
               token.substr(0, 60), "\"");
  tokens_[at] = token;
  longest_ = std::max(longest_, std::ssize(token));
  ids_.insert_or_assign(token, static_cast<int32_t>(id));
}

std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte) {
    const int32_t id = vocabulary.find(concat("<0x", kDigits[byte / 16], kDigits[byte % 16], '>'));
    if (id < 0) return {};
    ids.push_back(id);
  }
  return ids;
}

namespace {

bool shown_as_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Byte of each character below U+0144, or -1.
std::array<int16_t, 0x144> make_alphabet() {
  std::array<int16_t, 0x144> bytes;
  bytes.fill(-1);
  size_t next = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte)
    bytes[shown_as_itself(byte) ? static_cast<size_t>(byte) : next++] = byte;
  return bytes;
}

}  // namespace

std::string byte_level_bytes(std::string_view spelled, bool& all_in_alphabet) {
  static const std::array<int16_t, 0x144> kAlphabet = make_alphabet();
  std::string out;
  all_in_alphabet = find_invalid_utf8(spelled) == spelled.size();
  for (size_t at = 0; all_in_alphabet && at < spelled.size();) {
    const char32_t c = next_character(spelled, at);
    all_in_alphabet = c < kAlphabet.size() && kAlphabet[c] >= 0;
    if (all_in_alphabet) out.push_back(static_cast<char>(kAlphabet[c]));
  }
  return all_in_alphabet ? out : std::string(spelled);
}

}  // namespace trireme
