// Stop token ids of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/chat_template_sources.h"
#include "engine/text/tokenizer.h"

namespace trireme {

// Stop token ids: the tokenizer's EOS, the ids listed in config.json and generation_config.json of
// its folder (for a .gguf, in its metadata), and the tokens that end a response in the chat
// templates. May contain an id twice. spec: argument of load_tokenizer() (engine/text/tokenizer.h).
// chat: the chat templates; may be empty.
std::vector<int32_t> stop_token_ids(const std::string& spec, const Tokenizer& tokenizer,
                                    const ChatTemplateSources& chat);

}  // namespace trireme
