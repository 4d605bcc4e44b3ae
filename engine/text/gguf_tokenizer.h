// The tokenizer in a GGUF file, and what a GGUF file must say about a tokenizer.
//
//   tokenizer.huggingface.json   a whole tokenizer.json: precedes llama.cpp's description
//   tokenizer.ggml.model         "gpt2": byte-level BPE, cut into words as tokenizer.ggml.pre says
//                                "llama": SentencePiece, joined by scores
//   tokenizer.ggml.*             vocabulary, special tokens by role, what is around a text
//   tokenizer.chat_template      Jinja (chat_template.h); others beside it have names,
//                                tokenizer.chat_template.NAME, listed in tokenizer.chat_templates
//
// tokenizer_keys.h lists all keys and what becomes of each.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/gguf.h"
#include "engine/text/chat_template_sources.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// InputError where the file has no tokenizer, or one that is not known, which is named.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::string& path);

// Names and contents of the files beside a HuggingFace model that say the same: tokenizer.json, or
// tokenizer.model for SentencePiece, comes first, then tokenizer_config.json, then
// chat_template.jinja where there is one and those beside it. InputError as of
// load_gguf_tokenizer().
using GgufTokenizerFiles = std::vector<std::pair<std::string, std::string>>;
GgufTokenizerFiles gguf_tokenizer_files(const std::string& path);

// spec: what load_tokenizer() takes. vocab_size: rows of the model's table; tokens beyond the
// tokenizer's are filled up. A byte-level tokenizer.json is written in llama.cpp's words where they
// know how it cuts words, and as a whole; a SentencePiece model in llama.cpp's words; special
// tokens by role, tokenizer_config.json and chat templates beside it too. Empty for "", "byte" and
// what no words are known for.
GgufMetadata gguf_tokenizer_metadata(const std::string& spec, int64_t vocab_size);
// Puts these chat templates into the metadata in place of those in it; empty: nothing changes.
void set_gguf_chat_templates(const ChatTemplateSources& sources, GgufMetadata& metadata);

}  // namespace trireme
