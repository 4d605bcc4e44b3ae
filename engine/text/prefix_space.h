// Space before a text, where tokenizer_config.json wants another one than tokenizer.json has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

struct TokenizerConfig;

// Changes normalizer, pre_tokenizer and decoder of a tokenizer.json as the classes of transformers
// do for add_prefix_space: ByteLevel's flag, or the scheme of Metaspace and Prepend ("first", with
// legacy "always"). `legacy` alone changes Metaspace's scheme with tokenizer_class LlamaTokenizer.
// Nothing with PreTrainedTokenizerFast and where the settings are absent or the file agrees.
// InputError, which begins with `name`, where it differs and `tokenizer_class` does not say what
// counts.
void apply_prefix_space(const TokenizerConfig& config, nlohmann::json& tokenizer,
                        const std::string& name);

}  // namespace trireme
