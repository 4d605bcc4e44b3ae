#include "commands/model_text.h"

#include "engine/text/conversation.h"
#include "transformer/text_ends.h"

namespace trireme {

std::string tokenizer_spec(const std::string& model, const std::string& asked,
                           const RunConfig& trained) {
  std::string spec = asked.empty() ? trained.data.tokenizer : asked;
  if (spec.empty())
    fail_input(
        model,
        " names no tokenizer (a run's data.tokenizer, tokenizer.json or tokenizer.model in a "
        "HuggingFace directory); give --tokenizer byte, a tokenizer.json or a .model");
  return spec;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec, const RunConfig& trained) {
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(spec);
  check_ids_fit(*tokenizer, trained.model.vocab_size);
  return tokenizer;
}

std::vector<int32_t> stop_tokens(const std::string& spec, const Tokenizer& tokenizer,
                                 const std::string& chat) {
  std::vector<int32_t> ends = tokenizer_ends(spec, tokenizer.vocab_size());
  if (tokenizer.eod_id() >= 0) ends.push_back(tokenizer.eod_id());
  if (chat.empty()) return ends;
  const ChatTemplate source(chat);
  if (const int32_t end = ConversationWriter(source, tokenizer).end_of_turn(); end >= 0)
    ends.push_back(end);
  return ends;
}

}  // namespace trireme
