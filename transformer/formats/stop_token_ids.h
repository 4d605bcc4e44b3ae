// Stop token ids (EOS) of a model, from the files next to its tokenizer, and its padding token.
//
// Published models list several (end of text, end of turn) as "eos_token_id" in config.json and
// generation_config.json. They are ids of the tokenizer in the same directory; copies of a
// tokenizer include generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// GGUF keys of the token ids that end a text, a turn and a message.
inline constexpr const char* kGgufStopKeys[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

// Stop token ids of a directory: those of config.json, then further ones of generation_config.json.
// Skips ids outside [0, vocab_size), a config.json without "model_type", and missing files.
// InputError for a file that cannot be read.
std::vector<int32_t> stop_token_ids(const std::string& directory, int64_t vocab_size);
// Stop token ids for an argument of load_tokenizer(): those of its directory. For a .gguf: the ids
// under kGgufStopKeys, then those under kGgufStopTokens (engine/text/tokenizer_keys.h). None for
// "byte" and "".
std::vector<int32_t> tokenizer_stop_token_ids(const std::string& tokenizer, int64_t vocab_size);
// Id of the padding token in a directory's config.json, if it is in [0, vocab_size).
std::optional<int32_t> padding_id(const std::string& directory, int64_t vocab_size);

}  // namespace trireme
