// Resolution of add_prefix_space, the leading space of a text, in tokenizer_config.json and
// tokenizer.json, which may differ.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

struct TokenizerConfig;

// Changes normalizer, pre_tokenizer and decoder of a tokenizer.json as the tokenizer classes of
// transformers do for add_prefix_space of tokenizer_config.json.
//   with ByteLevel     sets its flag add_prefix_space; not for LlamaTokenizer
//   true, otherwise    sets the scheme of Metaspace to "first", with `legacy` to "always"; adds a
//                      Metaspace if there is no pre_tokenizer
//   false, otherwise   sets the scheme of Metaspace to "never"; removes Prepend from the normalizer
//                      and Strip from the decoder
// No effect for the classes PreTrainedTokenizerFast and TokenizersBackend. If the files agree, or
// tokenizer_config.json has no add_prefix_space, only `legacy` of a LlamaTokenizer has an effect:
// it sets the scheme of a Metaspace that adds the space, if there is no ByteLevel and no Prepend.
// Throws InputError, prefixed by `name`, if the files differ and
// the precedence for this tokenizer_class is unknown, or if a Metaspace cannot be added.
void apply_prefix_space(const TokenizerConfig& config, nlohmann::json& tokenizer,
                        const std::string& name);

}  // namespace trireme
