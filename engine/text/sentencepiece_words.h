// Byte-pair encoding of a SentencePiece model word by word, where that gives the ids of the
// library.
//
// No piece joins what lies on both sides of a cut, so the words between cuts are encoded on their
// own and remembered:
// before the first of a row of spaces, and around characters that stand in no piece of several.
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
  // nullptr where equality does not follow from what the model says: unigram models (sums of floats
  // depend on the library's order), a character map, folded or unescaped white space, user-defined
  // and unused pieces, no byte fallback, pieces with spaces behind other characters or with
  // characters that are no pieces themselves.
  static std::unique_ptr<SentencePieceWords> make(const SentencePieces& parts,
                                                  const std::string& name);

  // Appends the ids of a text, which must be valid UTF-8. Safe to share between threads.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  SentencePieceWords(const SentencePieces& parts, const std::string& name);
  std::unique_ptr<TokenModel> model_;
  bool adds_leading_space_;
  std::array<bool, 256> ordinary_{};  // bytes that a word simply goes on with
  std::array<bool, 128> alone_{};     // ASCII characters that are words of their own
};

}  // namespace trireme
