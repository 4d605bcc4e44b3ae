// Special tokens by name beside a tokenizer, for chat templates.
#pragma once

#include <map>
#include <string>

namespace trireme {

// Variables that transformers gives a chat template: unk_token, sep_token, pad_token, cls_token,
// mask_token, every other key "..._token" of tokenizer_config.json that is a token, and the names
// of extra_special_tokens and model_specific_special_tokens where they are objects. As there,
// special_tokens_map.json counts, and before the others, unless tokenizer_config.json has an
// added_tokens_decoder. Without bos_token and eos_token, which the tokenizer itself has. Null is no
// token.
//
// tokenizer: its path (Tokenizer::name()), a GGUF file too; nothing for "byte". InputError, with the
// file and the name, for a value that is no token.
std::map<std::string, std::string> named_tokens(const std::string& tokenizer);

}  // namespace trireme
