// Context of a completion's or chat's response: the properties that do not change during
// generation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "serving/api/json_writer.h"
#include "serving/api/response_form.h"

namespace trireme {

struct ResponseIdentity {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // of the weights
};

struct ResponseContext {
  ResponseIdentity identity;
  ResponseForm form;
  const Tokenizer& tokenizer;                 // must outlive this object
  std::vector<std::vector<int32_t>> prompts;  // token ids

  // Prompt of the choice with this index, and index of that prompt's first choice. Each prompt has
  // form.n choices.
  const std::vector<int32_t>& prompt_of(size_t choice) const;
  size_t first_of_prompt(size_t choice) const;
  // Begins the object of a whole response or of an event: the members before the choices.
  void begin_json(JsonWriter& json) const;
  // Id of a tool call: "call_" and 24 letters or digits; 9 without a prefix for Mistral's format,
  // as its templates require. Depends only on the format, response id, choice and call.
  std::string call_id(size_t choice, int64_t call) const;
};

}  // namespace trireme
