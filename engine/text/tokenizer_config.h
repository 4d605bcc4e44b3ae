// Settings in the files next to a tokenizer: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json, read as transformers 5 does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/added_tokens.h"

namespace trireme {

struct TokenizerConfig {
  std::string tokenizer_class;  // without "Fast"; "": not given
  // Tokens by role ("bos_token", or a name in extra_special_tokens); nullopt: null in the file,
  // meaning none.
  std::map<std::string, std::optional<std::string>> roles;
  std::vector<AddedToken> added;  // with their ids
  std::vector<AddedToken> named;  // special tokens known by content only; id -1
  // Absent: not given, or null.
  std::optional<bool> adds_bos, adds_eos, adds_prefix_space, legacy;
  bool cleans_up_spaces = false;
  std::string gguf_metadata;  // JSON of kConfigGgufMetadata; "": none
};

// Parses `text`, the contents of a tokenizer_config.json; "" for none. `name` is the prefix of
// messages. InputError for damage and for keys that are unknown or refused (tokenizer_keys.h).
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& name);

// Returns a tokenizer_config.json equivalent to the three files in a directory; "" if none exists.
std::string tokenizer_config_beside(const std::string& directory);

}  // namespace trireme
