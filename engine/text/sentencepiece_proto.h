// What a serialized SentencePiece model says about itself, read without trusting it.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

struct SentencePieceFacts {
  // Decoding drops a space in front of the first word: encoding had put one there.
  bool drops_leading_space = true;
  // Encoding changes no character: no character map, no folding of white space.
  bool keeps_text = false;
};

// Walks the protocol buffer and checks the character map, which the library follows without bounds:
// a double-array trie whose every step must stay inside the array, and values that must point into
// the table of replacements. InputError names `name` and the damage.
SentencePieceFacts check_sentencepiece_model(std::string_view model, const std::string& name);

}  // namespace trireme
