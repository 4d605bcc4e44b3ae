// What a serialized SentencePiece model says about itself, read without trusting it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct SentencePieceFacts {
  // Decoding drops a space in front of the first word: encoding had put one there.
  bool drops_leading_space = true;
  bool drops_leading_spaces = false;  // all of those that are tokens of their own, too
  // Encoding changes no character: no character map, no folding of white space.
  bool keeps_text = false;
};

// Walks the protocol buffer and checks the character map, which the library follows without bounds:
// a double-array trie whose every step must stay inside the array, and values that must point into
// the table of replacements. InputError names `name` and the damage.
SentencePieceFacts check_sentencepiece_model(std::string_view model, const std::string& name);

// A model taken apart, and put together again: what other files say of such a tokenizer
// (gguf_tokenizer.h).
struct SentencePieces {
  enum Type : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;
    double score = 0;
    int64_t type = kNormal;
  };
  std::vector<Piece> pieces;
  bool pairs = true;  // byte-pair encoding; else unigram
  bool adds_leading_space = true, removes_extra_spaces = false;
  bool maps_characters = false;  // is not taken apart
  bool escapes_spaces = true, space_as_suffix = false, byte_fallback = false;
  int64_t bos = -1, eos = -1, unknown = -1;
};
SentencePieces take_apart(std::string_view model, const std::string& name);
std::string put_together(const SentencePieces& parts);

// The model with or without a space put before a text: appends the field, whose last value counts.
std::string with_leading_space(std::string_view model, bool adds);

}  // namespace trireme
