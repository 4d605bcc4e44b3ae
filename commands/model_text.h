// Stop token ids of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/chat_template_sources.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// The tokenizer's EOS, the ids listed in the files beside it, and the tokens with which the chat
// templates (empty: none) end a response.
std::vector<int32_t> stop_tokens(const std::string& spec, const Tokenizer& tokenizer,
                                 const ChatTemplateSources& chat);

}  // namespace trireme
