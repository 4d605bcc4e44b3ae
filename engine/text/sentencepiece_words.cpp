#include "engine/text/sentencepiece_words.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "engine/core/utf8.h"
#include "engine/text/unicode.h"
#include "engine/text/vocabulary.h"

namespace trireme {
namespace {

constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581, a space in pieces

bool is_one_character(std::string_view text) {
  return !text.empty() && character_bytes(text[0]) >= text.size();
}

// Whether a normal piece is a run of spaces followed by other characters, each of which is in
// `characters`.
bool fits_words(std::string_view text, const std::unordered_set<std::string_view>& characters) {
  if (find_invalid_utf8(text) != text.size()) return false;
  bool spaces = true;
  for (size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, character_bytes(text[at]));
    if (character == " " || !characters.contains(character)) return false;
    if (character == kEscapedSpace && !spaces) return false;
    spaces = spaces && character == kEscapedSpace;
    at += character.size();
  }
  return true;
}

bool gives_equal_ids(const SentencePieces& parts) {
  if (!parts.pairs || parts.maps_characters || parts.removes_extra_spaces ||
      !parts.escapes_spaces || parts.space_as_suffix || !parts.byte_fallback)
    return false;
  if (std::ssize(parts.pieces) > kMaxVocabulary) return false;
  std::unordered_set<std::string_view> characters;  // those that are normal pieces
  for (const SentencePieces::Piece& piece : parts.pieces)
    if (piece.type == SentencePieces::kNormal && is_one_character(piece.text))
      characters.insert(piece.text);
  return std::ranges::all_of(parts.pieces, [&](const SentencePieces::Piece& piece) {
    if (piece.text.empty() || std::ssize(piece.text) > kMaxTokenBytes) return false;
    if (!std::isfinite(piece.score)) return false;
    switch (piece.type) {
      case SentencePieces::kNormal: return fits_words(piece.text, characters);
      case SentencePieces::kUnknown:
      case SentencePieces::kControl:
      case SentencePieces::kByte: return !is_one_character(piece.text);
      default: return false;
    }
  });
}

}  // namespace

std::unique_ptr<SentencePieceWords> SentencePieceWords::make(const SentencePieces& parts,
                                                             const std::string& name) {
  if (!gives_equal_ids(parts)) return nullptr;
  return std::unique_ptr<SentencePieceWords>(new SentencePieceWords(parts, name));
}

SentencePieceWords::SentencePieceWords(const SentencePieces& parts, const std::string& name)
    : model_(make_scored_bpe(parts, name)), adds_leading_space_(parts.adds_leading_space) {
  alone_.fill(true);
  for (const SentencePieces::Piece& piece : parts.pieces)
    if (piece.type == SentencePieces::kNormal && !is_one_character(piece.text))
      for (const char c : piece.text)
        if (const auto byte = static_cast<uint8_t>(c); byte < alone_.size()) alone_[byte] = false;
  for (size_t byte = 0; byte < ordinary_.size(); ++byte)
    ordinary_[byte] = byte >= alone_.size() || !alone_[byte];
  ordinary_[' '] = ordinary_[static_cast<uint8_t>(kEscapedSpace[0])] = false;
}

void SentencePieceWords::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::string word;
  bool spaces = true;  // only spaces in the word so far
  const auto finish = [&] {
    if (!word.empty()) model_->encode(word, ids);
    word.clear();
    spaces = true;
  };
  if (adds_leading_space_) word = kEscapedSpace;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    while (at < text.size() && ordinary_[static_cast<uint8_t>(text[at])]) ++at;
    if (at > begin) {
      word.append(text.substr(begin, at - begin));
      spaces = false;
      continue;
    }
    const bool escaped = text.substr(at).starts_with(kEscapedSpace);
    if (text[at] == ' ' || escaped) {
      if (!spaces) finish();
      word += kEscapedSpace;
      at += escaped ? kEscapedSpace.size() : 1;
    } else if (static_cast<uint8_t>(text[at]) < alone_.size()) {
      finish();
      word = text[at++];
      finish();
    } else {  // another character with the first byte of the escaped space
      word += text[at++];
      spaces = false;
    }
  }
  finish();
}

}  // namespace trireme
