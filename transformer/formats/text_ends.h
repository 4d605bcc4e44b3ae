// Where texts end, by what lies beside a tokenizer.
//
// Published models list several ends (of a text, of a turn) under "eos_token_id" of config.json and
// of generation_config.json; they are ids of the tokenizer in the same directory, and copies of it
// keep the latter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// What llama.cpp calls the ends of a text, of a turn and of a message.
inline constexpr const char* kGgufEnds[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

// Of a directory: those of config.json, then what generation_config.json adds. Ids that are none
// below vocab_size are left out, and so are files without a "model_type" and files that do not
// exist. InputError for one that cannot be read.
std::vector<int32_t> text_ends(const std::string& directory, int64_t vocab_size);
// Ends of the directory of a tokenizer, as load_tokenizer() takes it, or of a .gguf by kGgufEnds,
// then those of kGgufStopTokens; none for "byte".
std::vector<int32_t> tokenizer_ends(const std::string& tokenizer, int64_t vocab_size);

}  // namespace trireme
