// Parser of serialized SentencePiece models from untrusted files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct SentencePieceFacts {
  // Decoding drops a space before the first word, as encoding adds one there.
  bool drops_leading_space = true;
  bool drops_leading_spaces = false;  // also those that are separate tokens
  // Encoding changes no character: no character map, no folding of white space.
  bool keeps_text = false;
};

// Parses the protocol buffer and checks the character map, which the library follows without bounds
// checks: every step of its double-array trie must stay inside the array, and its values must point
// into the table of replacements. InputError with `name` and the damage.
SentencePieceFacts check_sentencepiece_model(std::string_view model, const std::string& name);

// Fields of a model, for conversion from and to other descriptions of such a tokenizer
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
  bool maps_characters = false;  // has a character map, whose content is not parsed
  bool escapes_spaces = true, space_as_suffix = false, byte_fallback = false;
  int64_t bos = -1, eos = -1, unknown = -1;
};
SentencePieces parse_sentence_pieces(std::string_view model, const std::string& name);
std::string serialize_sentence_pieces(const SentencePieces& parts);

// Returns the model with add_dummy_prefix set: appends the field, of which the last value counts.
std::string with_leading_space(std::string_view model, bool adds);

}  // namespace trireme
