// Tokenizer of a GGUF file, and GGUF metadata of a tokenizer.
//
//   tokenizer.huggingface.json   a whole tokenizer.json: precedes llama.cpp's description
//   tokenizer.ggml.model         "gpt2": byte-level BPE, split into words by tokenizer.ggml.pre
//                                "llama": SentencePiece, joined by scores
//   tokenizer.ggml.*             vocabulary, special tokens by role, tokens added around a text
//   tokenizer.chat_template      Jinja (chat_template.h); further ones have names,
//                                tokenizer.chat_template.NAME, listed in tokenizer.chat_templates
//
// tokenizer_keys.h lists all keys and how each is handled.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/gguf.h"
#include "engine/text/chat_template_sources.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// Loads the tokenizer of a file. InputError if it has none, or an unknown one, which is named.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::string& path);

// Names and contents of the equivalent files of a HuggingFace model: tokenizer.json, or
// tokenizer.model for SentencePiece, then tokenizer_config.json, then the files of chat templates
// (chat_template_sources.h). InputError in the cases of load_gguf_tokenizer().
using GgufTokenizerFiles = std::vector<std::pair<std::string, std::string>>;
GgufTokenizerFiles gguf_tokenizer_files(const std::string& path);

// Returns the GGUF metadata of a tokenizer. spec: as for load_tokenizer(). vocab_size: rows of the
// model's embedding; ids beyond the tokenizer's get filler tokens.
//   byte-level tokenizer.json   as a whole, and in llama.cpp's keys if they can express its words
//   SentencePiece model         in llama.cpp's keys
//   either                      special tokens by role, tokenizer_config.json, chat templates
// Empty for "", "byte" and tokenizers that no keys can express.
GgufMetadata gguf_tokenizer_metadata(const std::string& spec, int64_t vocab_size);
// Replaces the chat templates in the metadata by these; empty: no change.
void set_gguf_chat_templates(const ChatTemplateSources& sources, GgufMetadata& metadata);

}  // namespace trireme
