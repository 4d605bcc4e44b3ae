// What commands that generate need beside a loaded model: its tokenizer, and what ends its texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "training/loaded_model.h"

namespace trireme {

// "byte", or the path of a tokenizer (load_tokenizer()): the one that is asked for, else the model's own.
// InputError where there is neither; `model` is what the user named it.
std::string tokenizer_spec(const std::string& model, const std::string& asked,
                           const RunConfig& trained);
// InputError where it has ids that the model does not.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec, const RunConfig& trained);

// The tokenizer's end, those that the files beside it list, and what the chat template `chat` (a source; empty: none)
// ends an answer with.
std::vector<int32_t> stop_tokens(const std::string& spec, const Tokenizer& tokenizer,
                                 const std::string& chat);

}  // namespace trireme
