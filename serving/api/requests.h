// Request types shared by several endpoints (serving/api/endpoints has the request of each).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Constraint on the generated text.
struct Constraint {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kToolCalls };
  Kind kind = Kind::kNone;
  // By kind: JSON Schema, regular expression, grammar, or for kToolCalls the tools as JSON
  // (serving/structured/tool_format.h). Unused for kJsonObject and kChoice.
  std::string text = {};
  std::vector<std::string> choices = {};  // allowed texts, for kChoice
  // Tools that may be called instead of writing such a text, in the format of `text` for
  // kToolCalls; "": none.
  std::string tools = {};
  std::string param = {};  // name of the request's field that sets the constraint
};

struct Prompt {
  std::string text = {};
  std::vector<int32_t> tokens = {};
  bool is_text = true;  // false: `tokens` is the prompt
};

// Limits on requests, in addition to those of single fields.
struct RequestLimits {
  int64_t sequences = 128;         // prompts times n (or best_of)
  int64_t vocab_size = INT32_MAX;  // token ids are below this
  int json_depth = 64;             // maximum nesting of arrays and objects
  bool has_priorities = false;     // priorities other than 0 are allowed
};

// Members shared by completions and chats. generation_fields.h describes each field.
struct GenerationRequest {
  std::string model;
  std::optional<int64_t> max_tokens;  // absent: up to the model's maximum length
  int64_t min_tokens = 0;
  int64_t n = 1;
  double temperature = 1, top_p = 1, min_p = 0, typical_p = 1;
  int64_t top_k = 0;  // 0 and -1: all
  double repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::optional<int64_t> seed;
  bool beam_search = false;  // n (or best_of) beams; no sampling
  double length_penalty = 1;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false, ignore_eos = false, skip_special = true;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::vector<std::string> bad_words;
  int32_t top_logprobs = -1;     // alternatives per token; -1: no log-probabilities
  int32_t prompt_logprobs = -1;  // same for the prompt's tokens, in a member of their own
  bool tokens_as_ids = false;    // "token_id:17" in log-probabilities
  bool token_ids = false;        // returns the ids of prompts and completions
  bool stream = false, include_usage = false, usage_in_each = false;
  int64_t priority = 0;  // lower first
  std::string cache_salt;
  Constraint constraint;
  std::vector<std::string> unknown;  // unknown fields, which were ignored
};

}  // namespace trireme
