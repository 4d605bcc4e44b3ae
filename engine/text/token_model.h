// Models of a tokenizer.json: encode a word as tokens.
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
  // Maximum number of bytes of a word per id; 0: no bound is known.
  virtual int64_t max_bytes_of_id() const = 0;
};

// Byte-pair encoding (Sennrich et al. 2016): joins the pair of neighbouring symbols with the lowest
// merge rank, of equal pairs the leftmost, until no pair has a merge. The initial symbols are
// characters, or bytes with `byte_level`; those that the vocabulary lacks become byte tokens
// (byte_fallback), else the unknown token, and are dropped if there is neither. `json`: the object
// "model" of type BPE; `what` is the prefix of messages.
std::unique_ptr<TokenModel> make_bpe(const nlohmann::json& json, bool byte_level,
                                     const std::string& what);

// SentencePiece's byte-pair encoding: joins the neighbouring symbols that form the piece with the
// highest score, of equal ones the leftmost, until none form a piece. Only normal pieces are formed
// from text; a character that is not a piece becomes the pieces "<0x00>" ... "<0xFF>" of its bytes,
// all of which must exist. Words are split by sentencepiece_words.h.
std::unique_ptr<TokenModel> make_scored_bpe(const SentencePieces& parts, const std::string& what);

// Unigram language model (Kudo 2018): the most probable segmentation of the word (Viterbi). A run
// of characters that no token covers becomes byte tokens (byte_fallback), else one unknown token;
// encode() throws InputError if there is neither. `json`: the object "model" of type Unigram.
std::unique_ptr<TokenModel> make_unigram(const nlohmann::json& json, const std::string& what);

}  // namespace trireme
