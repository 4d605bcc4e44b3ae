// HuggingFace tokenizers: a tokenizer.json with the files next to it, if any (tokenizer_config.h).
//
//   text -> added tokens | normalizer -> added tokens | pre-tokenizer -> model -> ids
//        -> post-processor
//
// Models BPE and Unigram; post-processors TemplateProcessing, ByteLevel (which changes no id) and
// Sequence. bos and eod are bos_token and eos_token of tokenizer_config.json. Without these keys:
// the token that the template adds before a text (bos) or after it (eod), if it adds exactly one
// there; else the first of these that the vocabulary has:
//   bos   <|begin_of_text|>, <s>, <|endoftext|>
//   eod   <|endoftext|>, <|end_of_text|>, </s>
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"

namespace trireme {

// Loads a tokenizer. InputError if the file is damaged or uses an unsupported feature, which is
// named.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& path);
// The same from the files' contents; config: "" for none. `name` is used in place of the path.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view config,
                                                const std::string& name);

}  // namespace trireme
