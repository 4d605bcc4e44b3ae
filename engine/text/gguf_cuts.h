// Pre-tokenizers of byte-level tokenizers by llama.cpp's names (tokenizer.ggml.pre).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

// Pre-tokenizer: splits words by an expression, then spells them in the byte alphabet.
struct GgufCut {
  const char* name;
  const char* expression;  // "": ByteLevel's own
  bool composes;           // NFC first
  bool keeps_words;        // a word that is a token is encoded as that token, without merges
  bool adds_bos;           // default of add_bos_token
};
const GgufCut* find_gguf_cut(const std::string& name);          // nullptr: unknown
const GgufCut* find_gguf_cut(const nlohmann::json& tokenizer);  // of a tokenizer.json
nlohmann::json gguf_cut_pre_tokenizer(const GgufCut& cut);

}  // namespace trireme
