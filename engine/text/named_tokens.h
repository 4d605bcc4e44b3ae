// Named special tokens of a tokenizer, for chat templates.
#pragma once

#include <map>
#include <string>

namespace trireme {

// Variables that transformers passes to a chat template: unk_token, sep_token, pad_token,
// cls_token, mask_token, every other key "..._token" of tokenizer_config.json that is a token, and
// the names of extra_special_tokens and model_specific_special_tokens if they are objects. As in
// transformers, special_tokens_map.json is used, and takes precedence, unless tokenizer_config.json
// has an added_tokens_decoder. Without bos_token and eos_token, which the tokenizer itself has.
// Null means no token.
//
// tokenizer: its path (Tokenizer::name()), which may be a GGUF file; no tokens for "byte".
// InputError, with the file and the name, for a value that is not a token.
std::map<std::string, std::string> named_tokens(const std::string& tokenizer);

}  // namespace trireme
