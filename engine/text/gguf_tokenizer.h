// The tokenizer in a GGUF file, and what a GGUF file must say about a tokenizer.
//
//   tokenizer.huggingface.json   a whole tokenizer.json: precedes llama.cpp's description
//   tokenizer.ggml.model         "gpt2": byte-level BPE, cut into words as tokenizer.ggml.pre says
//                                "llama": SentencePiece, joined by scores
//   tokenizer.ggml.*             vocabulary, special tokens by role, what is around a text
//   tokenizer.chat_template      Jinja (chat_template.h)
//
// tokenizer_keys.h lists all keys and what becomes of each.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/gguf.h"
#include "engine/text/tokenizer.h"

namespace trireme {

inline constexpr const char* kGgufChatTemplate = "tokenizer.chat_template";

// InputError where the file has no tokenizer, or one that is not known, which is named.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::string& path);

// Names and contents of the files beside a HuggingFace model that say the same: tokenizer.json, or
// tokenizer.model for SentencePiece, comes first, then tokenizer_config.json, then
// chat_template.jinja where there is one (several templates are in tokenizer_config.json).
// InputError as of load_gguf_tokenizer().
using GgufTokenizerFiles = std::vector<std::pair<std::string, std::string>>;
GgufTokenizerFiles gguf_tokenizer_files(const std::string& path);

// The source of the chat template in a file; "" where it has none.
std::string gguf_chat_template(const std::string& path);

// spec: what load_tokenizer() takes. vocab_size: rows of the model's table; tokens beyond the
// tokenizer's are filled up. A byte-level tokenizer.json is written in llama.cpp's words where they
// know how it cuts words, and as a whole; a SentencePiece model in llama.cpp's words; special
// tokens by role, tokenizer_config.json and chat templates beside it too. Empty for "", "byte" and
// what no words are known for.
GgufMetadata gguf_tokenizer_metadata(const std::string& spec, int64_t vocab_size);

}  // namespace trireme
