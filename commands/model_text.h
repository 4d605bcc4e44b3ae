// What ends the texts of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace trireme {

// The tokenizer's end, those that the files beside it list, and what the chat template `chat` (a
// source; empty: none) ends an answer with.
std::vector<int32_t> stop_tokens(const std::string& spec, const Tokenizer& tokenizer,
                                 const std::string& chat);

}  // namespace trireme
