// What turns a word into tokens: the models of a tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "engine/text/vocabulary.h"

namespace trireme {

struct SentencePieces;

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of a word. Safe to share between threads.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  // Bytes of a word for which one id stands at most; 0: no such bound is known.
  virtual int64_t most_bytes_of_id() const = 0;
};

// Byte-pair encoding (Sennrich et al. 2016): the pair of neighbouring symbols that was learnt first
// is joined first, the leftmost of equals. Symbols begin as characters, or as bytes with
// `byte_level`; those that the vocabulary lacks become byte tokens, or the unknown token.
// `json`: the object "model" of type BPE; `what` begins messages.
std::unique_ptr<TokenModel> make_bpe(const nlohmann::json& json, bool byte_level,
                                     const std::string& what);

// SentencePiece's byte-pair encoding: of neighbouring symbols that join to a piece those of the
// piece with the highest score are joined first, the leftmost of equals. Normal pieces come of
// texts; a character that is none becomes the pieces "<0x00>" ... "<0xFF>" of its bytes, all of
// which must be there. Words are as sentencepiece_words.h cuts them.
std::unique_ptr<TokenModel> make_scored_bpe(const SentencePieces& parts, const std::string& what);

// Unigram language model (Kudo 2018): the most probable cut of the word (Viterbi).
// `json`: the object "model" of type Unigram.
std::unique_ptr<TokenModel> make_unigram(const nlohmann::json& json, const std::string& what);

}  // namespace trireme
