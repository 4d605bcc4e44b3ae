// How llama.cpp names the ways in which byte-level tokenizers cut words (tokenizer.ggml.pre).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

// An expression, after which the alphabet of bytes is used.
struct GgufCut {
  const char* name;
  const char* expression;  // "": ByteLevel's own
  bool composes;           // NFC before
  bool keeps_words;        // a word that is a token is it, whatever the merges
  bool adds_bos;           // where the file does not say
};
const GgufCut* find_gguf_cut(const std::string& name);          // nullptr: not known
const GgufCut* find_gguf_cut(const nlohmann::json& tokenizer);  // of a tokenizer.json
nlohmann::json gguf_cut_pre_tokenizer(const GgufCut& cut);

}  // namespace trireme
