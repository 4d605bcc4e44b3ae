// Response of a completion or a chat during generation: events of a stream (response_events.h), or
// one object at the end (response_body.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serving/api/generation_choice.h"
#include "serving/api/response_context.h"
#include "serving/api/usage.h"

namespace trireme {

class GenerationResponse {
 public:
  // prompts: token ids of the prompts; choice i belongs to prompt i / form.n. The tokenizer must
  // outlive this object.
  GenerationResponse(ResponseIdentity identity, ResponseForm form, const Tokenizer& tokenizer,
                     std::vector<std::vector<int32_t>> prompts);

  size_t choices() const { return choices_.size(); }
  // Adds output of a choice; for a stream, appends its events to `frames`. Ignored after the choice
  // has ended. prompt: next prompt tokens with log-probabilities, from the second token on. They
  // are used only of the prompt's first choice, which must get them before its other choices get
  // any output. tokens: next tokens of the choice. cached_prompt: prompt tokens found in the prefix
  // cache. finish: set if the choice ends.
  void accept(size_t choice, std::span<const OutputToken> prompt,
              std::span<const OutputToken> tokens, int64_t cached_prompt,
              std::optional<FinishReason> finish, std::string& frames);
  // True if the choice has ended, by its last token or earlier by a stop string.
  bool ended(size_t choice) const { return choices_[choice]->finish != nullptr; }
  bool done() const { return open_ == 0; }  // all choices have ended

  // Whole response; requires done().
  std::string body() const;
  // Approximate bytes of the response so far; 0 for a stream.
  int64_t held_bytes() const { return held_; }
  Usage usage() const;  // so far; a prompt counts once, not for each of its choices
  int64_t completion_tokens(size_t choice) const { return choices_[choice]->generated; }
  // "stop" or "length"; nullptr: the choice has not ended.
  const char* finish_reason(size_t choice) const { return choices_[choice]->finish; }

 private:
  void accept_prompt(GenerationChoice& choice, bool first, std::span<const OutputToken> tokens,
                     TextDelta& delta);
  void hold_ids(const GenerationChoice& choice, bool first, int64_t tokens);
  void hold(GenerationChoice& choice, const TextDelta& delta, int64_t reported,
            std::vector<ToolCallDelta::Call> calls);
  void write_events(GenerationChoice& choice, bool first, const std::string& text,
                    const std::vector<ToolCallDelta::Call>& calls, std::string& frames) const;

  std::unique_ptr<const ResponseContext> response_;
  std::vector<std::unique_ptr<GenerationChoice>> choices_;
  size_t open_ = 0;   // choices that have not ended
  int64_t held_ = 0;  // bytes
};

}  // namespace trireme
