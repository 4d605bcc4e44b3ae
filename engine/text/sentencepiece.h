// SentencePiece models (Kudo and Richardson, "SentencePiece: a simple and language independent
// subword tokenizer and detokenizer for neural text processing", EMNLP 2018), through the library.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// Settings of a model that are not in its own file.
struct SentencePieceSettings {
  // Tokens that the model lacks, with ids after its own and without gaps, or other spellings for
  // some of its ids. They are matched in a text before the model encodes the rest.
  std::vector<AddedToken> added = {};
  std::optional<std::string> bos = {}, eos = {};  // absent: the model's own; empty: none
  bool adds_bos = true, adds_eos = false;         // around a text (EncodeOptions::add_special)
  // Special tokens known by content only; they get ids after all others if neither the model nor
  // `added` has them.
  std::vector<AddedToken> named = {};
  std::optional<bool> adds_leading_space = {};  // absent: the model's setting
  bool leading_space_once = false;              // no leading space after an added token
};

// Loads a model. eod_id() and bos_id() are the model's eos and bos, unless the files next to it
// name others (tokenizer_config.h); their add_bos_token, add_eos_token, add_prefix_space and legacy
// are also used. InputError for a file that is not a SentencePiece model, is damaged, or was
// crafted to crash the library.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path);
// The same from the bytes of a model; `name` is used in place of the path.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view model, const std::string& name,
                                               const SentencePieceSettings& settings = {});

// Settings from a tokenizer_config.json.
struct TokenizerConfig;
SentencePieceSettings sentencepiece_settings(const TokenizerConfig& config);

struct SentencePieceTraining {
  int64_t vocab_size = 0;
  std::string model_type = "bpe";  // or "unigram"
};

// Trains a model on the sentences that `next` yields until it returns false, and returns its bytes.
// Text is preserved (no normalization, white space kept, bytes for characters outside the
// vocabulary), so that decode(encode(x)) == x. Ids: 0 <unk>, 1 <s>, 2 </s>, then 256 bytes, then
// pieces. Deterministic on every machine. InputError if the vocabulary is too small, or the text
// too short for it.
std::string train_sentencepiece(const SentencePieceTraining& options,
                                const std::function<bool(std::string& sentence)>& next);

}  // namespace trireme
