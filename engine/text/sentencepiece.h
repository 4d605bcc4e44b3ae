// SentencePiece models (Kudo and Richardson, "SentencePiece: a simple and language independent
// subword tokenizer and detokenizer for neural text processing", EMNLP 2018), through the library.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace trireme {

// eod is the model's eos, bos its bos. A file that is no SentencePiece model, is damaged, or was made
// to crash the library is an InputError.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path);
// The same from the bytes of a model; `name` stands for the path.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view model, const std::string& name);

struct SentencePieceTraining {
  int64_t vocab_size = 0;
  std::string model_type = "bpe";  // or "unigram"
};

// Bytes of a model trained on the sentences that `next` yields until it returns false. Text is kept
// as it is (no normalisation, white space kept, bytes for characters outside the vocabulary), so
// decode(encode(x)) == x. Ids: 0 <unk>, 1 <s>, 2 </s>, then 256 bytes, then pieces.
// The same sentences give the same model on every machine. InputError when the vocabulary is too
// small or the text too short for it.
std::string train_sentencepiece(const SentencePieceTraining& options,
                                const std::function<bool(std::string& sentence)>& next);

}  // namespace trireme
