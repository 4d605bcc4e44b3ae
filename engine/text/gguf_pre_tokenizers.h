// Pre-tokenizers of byte-level tokenizers by llama.cpp's names (tokenizer.ggml.pre).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

// Pre-tokenizer: splits words by an expression, then spells them in the byte alphabet.
struct GgufPreTokenizer {
  const char* name;
  const char* expression;  // "": ByteLevel's own
  bool composes;           // NFC first
  bool keeps_words;        // a word that is a token is encoded as that token, without merges
  bool adds_bos;           // default of add_bos_token
};
const GgufPreTokenizer* find_gguf_pre_tokenizer(const std::string& name);  // nullptr: unknown
// Pre-tokenizer equivalent to the parts of a tokenizer.json; nullptr: none is.
const GgufPreTokenizer* find_gguf_pre_tokenizer(
    const nlohmann::json& tokenizer);  // of a tokenizer.json
// Object "pre_tokenizer" of a tokenizer.json; `composes` and `keeps_words` are not part of it.
nlohmann::json pre_tokenizer_json(const GgufPreTokenizer& cut);

}  // namespace trireme
