// Leading space of a text (add_prefix_space), where tokenizer_config.json and tokenizer.json
// differ.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

struct TokenizerConfig;

// Changes normalizer, pre_tokenizer and decoder of a tokenizer.json like the classes of
// transformers for add_prefix_space: ByteLevel's flag, or the scheme of Metaspace and Prepend
// ("first", with legacy "always"). `legacy` alone changes Metaspace's scheme for tokenizer_class
// LlamaTokenizer. No effect for PreTrainedTokenizerFast, without these settings, or if the file
// agrees. Throws InputError, prefixed by `name`, if it differs and `tokenizer_class` does not say
// which takes precedence.
void apply_prefix_space(const TokenizerConfig& config, nlohmann::json& tokenizer,
                        const std::string& name);

}  // namespace trireme
