// Everything about the response to a completion or a chat that does not change while it is
// generated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "serving/api/json_writer.h"
#include "serving/api/reply_form.h"

namespace trireme {

struct ReplyIdentity {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // of the weights
};

struct ReplyContext {
  ReplyIdentity identity;
  ReplyForm form;
  const Tokenizer& tokenizer;  // which outlives this object
  std::vector<std::vector<int32_t>> prompts;

  // The prompt of the choice with this index, and the first choice of that prompt.
  const std::vector<int32_t>& prompt_of(size_t choice) const;
  size_t first_of_prompt(size_t choice) const;
  // Begins the object of a whole response or of an event, with its members up to the choices.
  void begin_json(JsonWriter& json) const;
  // Equal for equal responses, and as long as the templates of the model's family need it.
  std::string call_id(size_t choice, int64_t call) const;
};

}  // namespace trireme
