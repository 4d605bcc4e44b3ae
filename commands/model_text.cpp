#include "commands/model_text.h"

#include "engine/text/conversation.h"
#include "transformer/formats/stop_token_ids.h"

namespace trireme {

std::vector<int32_t> stop_token_ids(const std::string& spec, const Tokenizer& tokenizer,
                                    const ChatTemplateSources& chat) {
  std::vector<int32_t> ends = tokenizer_stop_token_ids(spec, tokenizer.vocab_size());
  if (tokenizer.eod_id() >= 0) ends.push_back(tokenizer.eod_id());
  if (chat.empty()) return ends;
  const ChatTemplate source(chat);
  for (const int32_t end : ConversationWriter(source, tokenizer).ends_of_turn())
    ends.push_back(end);
  return ends;
}

}  // namespace trireme
