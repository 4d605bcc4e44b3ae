// Named special tokens of a tokenizer, for chat templates.
#pragma once

#include <map>
#include <string>

namespace trireme {

// Returns the token variables that transformers passes to a chat template:
//   - unk_token, sep_token, pad_token, cls_token and mask_token
//   - every other key "..._token" of tokenizer_config.json whose value is a token
//   - the names in extra_special_tokens and model_specific_special_tokens, if these are objects
// Names whose value is null are omitted, and so are bos_token and eos_token, which Tokenizer
// supplies. As in transformers, special_tokens_map.json takes precedence, but is ignored if
// tokenizer_config.json has an added_tokens_decoder.
//
// tokenizer: its path (Tokenizer::name()), which may be a GGUF file; no tokens for "byte".
// InputError, with the file and the name, for a value that is not a token.
std::map<std::string, std::string> named_tokens(const std::string& tokenizer);

}  // namespace trireme
