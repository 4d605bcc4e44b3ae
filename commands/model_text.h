// What ends the texts of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/chat_template_sources.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// The tokenizer's end, those that the files beside it list, and what the chat templates (empty:
// none) end an answer with.
std::vector<int32_t> stop_tokens(const std::string& spec, const Tokenizer& tokenizer,
                                 const ChatTemplateSources& chat);

}  // namespace trireme
