// Byte-pair encoding of a SentencePiece model word by word, if that gives the same ids as the
// library.
//
// No piece crosses a word boundary, so that words can be encoded separately and cached. Boundaries
// are before each run of spaces, and around ASCII characters that occur in no piece of several
// characters.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/sentencepiece_proto.h"
#include "engine/text/token_model.h"

namespace trireme {

class SentencePieceWords {
 public:
  // Returns nullptr if equal ids are not guaranteed: unigram models (sums of floats depend on the
  // library's order), a character map, folded or unescaped white space, spaces as suffixes,
  // user-defined and unused pieces, no byte fallback, pieces with spaces after other characters or
  // with characters that are not pieces themselves.
  static std::unique_ptr<SentencePieceWords> make(const SentencePieces& parts,
                                                  const std::string& name);

  // Appends the ids of a text, which must be valid UTF-8. Safe to share between threads.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  SentencePieceWords(const SentencePieces& parts, const std::string& name);
  std::unique_ptr<TokenModel> model_;
  bool adds_leading_space_;
  std::array<bool, 256> ordinary_{};  // bytes that always continue the word
  std::array<bool, 128> alone_{};     // ASCII characters that are separate words
};

}  // namespace trireme
