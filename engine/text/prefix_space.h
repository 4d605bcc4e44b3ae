// Leading space of a text (add_prefix_space) if tokenizer_config.json and tokenizer.json differ.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme {

struct TokenizerConfig;

// Changes normalizer, pre_tokenizer and decoder of a tokenizer.json as the tokenizer classes of
// transformers do for add_prefix_space: the flag of ByteLevel, or the scheme of Metaspace ("first",
// with legacy "always", without the space "never") in place of Prepend. `legacy` alone changes the
// scheme of Metaspace for tokenizer_class LlamaTokenizer. No effect for PreTrainedTokenizerFast,
// without these settings, or if the files agree. Throws InputError, prefixed by `name`, if they
// differ and the precedence for this tokenizer_class is unknown.
void apply_prefix_space(const TokenizerConfig& config, nlohmann::json& tokenizer,
                        const std::string& name);

}  // namespace trireme
