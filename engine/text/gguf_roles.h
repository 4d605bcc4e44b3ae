// Special tokens by role in GGUF metadata, and their names in tokenizer_config.json. For .cpp files
// only (it includes the JSON library).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/io/gguf.h"
#include "engine/io/strict_json.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// Key of an embedded tokenizer.json.
inline constexpr const char* kGgufWhole = "tokenizer.huggingface.json";
inline constexpr JsonLimits kGgufJsonLimits = {.depth = 32, .keys_per_object = size_t{1} << 22};

// Vocabulary of a file, and token ids by the keys of kTokenRoles.
struct GgufTokens {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;          // SentencePieces::Type
  std::map<std::string, int64_t> ids;  // by kTokenRoles[].gguf; absent: no such token

  int64_t id(const std::string& key) const {  // -1: none
    const auto found = ids.find(key);
    return found == ids.end() ? -1 : found->second;
  }
  int64_t bos() const { return id("tokenizer.ggml.bos_token_id"); }
  int64_t eos() const { return id("tokenizer.ggml.eos_token_id"); }
  const std::string& name(int64_t of) const { return tokens.at(static_cast<size_t>(of)); }
};

// Returns the tokens of tokenizer.ggml.tokens, or else of the file's embedded tokenizer.json.
// InputError if there are no tokens or more than 2^24, if the number of types differs from that of
// tokens, if the id of a role is outside the vocabulary, or if the tokenizer.json is damaged.
GgufTokens gguf_tokens(const GgufFile& file);

// Returns a tokenizer_config.json equivalent to the file's keys, without chat templates: names of
// bos, eos, padding and others, kConfigGgufMetadata for keys that have no name there, and the other
// content of kGgufTokenizerConfig. A role other than bos and eos whose token is plain text ("!") is
// not named, because that would make the token special.
nlohmann::json gguf_tokenizer_config(const GgufFile& file, const GgufTokens& tokens);

// The reverse: adds the ids of the roles and the rest of the configuration to the metadata.
// `config`: contents of a tokenizer_config.json, "" for none. InputError for a kConfigGgufMetadata
// with other keys than those of a GGUF tokenizer.
void add_gguf_roles(const Tokenizer& tokenizer, const std::string& config, const std::string& name,
                    GgufMetadata& metadata);

// Tokens that encoding adds around a text (EncodeOptions::add_special).
struct TokensAround {
  bool bos, eos;
};
TokensAround tokens_around(const Tokenizer& tokenizer);

}  // namespace trireme
