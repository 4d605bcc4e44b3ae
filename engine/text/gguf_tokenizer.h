// The tokenizer in a GGUF file, and what a GGUF file must say about a tokenizer.
//
//   tokenizer.huggingface.json   a whole tokenizer.json: what is read where it is there
//   tokenizer.ggml.model         "gpt2": byte-level BPE, cut into words as tokenizer.ggml.pre says
//                                "llama": SentencePiece, joined by scores
//   tokenizer.chat_template      the source of the model's template
//   tokenizer.ggml.tokens, .scores, .token_type, .merges, .bos_token_id, .eos_token_id, .add_bos_token, ...
#pragma once

#include <memory>
#include <string>

#include "engine/io/gguf.h"
#include "engine/text/tokenizer.h"

namespace trireme {

inline constexpr const char* kGgufChatTemplate = "tokenizer.chat_template";

// InputError where the file has no tokenizer, or one that is not known, which is named.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::string& path);

// spec: what load_tokenizer() takes. vocab_size: rows of the model's table; tokens beyond the tokenizer's are
// filled up. A byte-level tokenizer.json is written in llama.cpp's words where they know how it cuts words, and
// as a whole; a SentencePiece model in llama.cpp's words; with the chat template beside it. Empty for "", "byte" and what no words are known for.
GgufMetadata gguf_tokenizer_metadata(const std::string& spec, int64_t vocab_size);

}  // namespace trireme
