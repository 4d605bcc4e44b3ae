// Keys of tokenizer files, and how each is handled: read, ignored or refused.
#pragma once

#include <string>

#include "engine/config/schema.h"
#include "engine/io/gguf.h"

namespace trireme {

// Role of a token: its key in GGUF metadata and in tokenizer_config.json.
struct TokenRole {
  const char* gguf;  // "tokenizer.ggml.bos_token_id"
  const char* name;  // "bos_token"; nullptr: HuggingFace's files have no name for it
};
inline constexpr TokenRole kTokenRoles[] = {
    {"tokenizer.ggml.bos_token_id", "bos_token"},
    {"tokenizer.ggml.eos_token_id", "eos_token"},
    {"tokenizer.ggml.unknown_token_id", "unk_token"},
    {"tokenizer.ggml.seperator_token_id", "sep_token"},  // spelled so in llama.cpp
    {"tokenizer.ggml.padding_token_id", "pad_token"},
    {"tokenizer.ggml.cls_token_id", "cls_token"},
    {"tokenizer.ggml.mask_token_id", "mask_token"},
    {"tokenizer.ggml.eot_token_id", nullptr},
    {"tokenizer.ggml.eom_token_id", nullptr},
    {"tokenizer.ggml.fim_pre_token_id", nullptr},
    {"tokenizer.ggml.fim_suf_token_id", nullptr},
    {"tokenizer.ggml.fim_mid_token_id", nullptr},
    {"tokenizer.ggml.fim_pad_token_id", nullptr},
    {"tokenizer.ggml.fim_rep_token_id", nullptr},
    {"tokenizer.ggml.fim_sep_token_id", nullptr},
    {"tokenizer.ggml.prefix_token_id", nullptr},
    {"tokenizer.ggml.suffix_token_id", nullptr},
    {"tokenizer.ggml.middle_token_id", nullptr}};

// Trireme's keys in a GGUF file, for facts without a llama.cpp key: stop token ids beyond eos, eot
// and eom, bos_token_id of config.json if it is not the tokenizer's, and tokenizer_config.json.
inline constexpr const char* kGgufStopTokens = "tokenizer.trireme.stop_token_ids";
inline constexpr const char* kGgufModelBos = "tokenizer.trireme.model_bos_token_id";
inline constexpr const char* kGgufTokenizerConfig = "tokenizer.trireme.config";
// The reverse, in tokenizer_config.json: an object of GGUF keys that HuggingFace has no key for.
inline constexpr const char* kConfigGgufMetadata = "gguf_metadata";

// Schema of tokenizer_config.json, for its check and for docs/reference/model-keys.md. The row
// "*_token" stands for any other key with this suffix: transformers treats it as a special token.
const Schema& tokenizer_config_schema();
// Schema of GGUF metadata after "tokenizer.", without chat_template.NAME.
const Schema& gguf_tokenizer_schema();

// Throws InputError for keys "tokenizer.*" that are unknown, refused, or have values of the wrong
// type.
void check_gguf_tokenizer_keys(const GgufFile& file);

}  // namespace trireme
