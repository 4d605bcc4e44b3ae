// Request types that several endpoints share (serving/api/endpoints has the requests of each).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// What a text must be.
struct Constraint {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kToolCalls };
  Kind kind = Kind::kNone;
  std::string text = {};  // the schema as JSON, the regular expression, the grammar,
                          // the tools
  std::vector<std::string> choices = {};  // of kChoice
  std::string tools =
      {};  // of which calls may stand in place of such a text, as kToolCalls has them in `text`
  std::string param = {};  // the field that asks for it
};

struct Prompt {
  std::string text = {};
  std::vector<int32_t> tokens = {};
  bool is_text = true;  // else tokens
};

// The bounds of requests beside those of the fields.
struct RequestLimits {
  int64_t sequences = 128;         // prompts times n
  int64_t vocab_size = INT32_MAX;  // ids are below
  int json_depth = 64;
  bool has_priorities = false;  // a request may ask for another priority than 0
};

// What completions and chats have in common.
struct GenerationRequest {
  std::string model;
  std::optional<int64_t> max_tokens;  // absent: as many as the model's length leaves
  int64_t min_tokens = 0;
  int64_t n = 1;
  double temperature = 1, top_p = 1, min_p = 0, typical_p = 1;
  int64_t top_k = 0;  // 0: all
  double repetition_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  std::optional<int64_t> seed;
  bool beam_search = false;  // n, or best_of, beams; nothing is drawn
  double length_penalty = 1;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false, ignore_eos = false, skip_special = true;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::vector<std::string> bad_words;
  int32_t top_logprobs = -1;     // so many beside each token's own; -1: no log-probabilities at all
  int32_t prompt_logprobs = -1;  // the same of the prompt's tokens, told apart from the text
  bool tokens_as_ids = false;    // "token_id:17" in log-probabilities
  bool token_ids = false;        // those of prompts and texts beside them
  bool stream = false, include_usage = false, usage_in_each = false;
  int64_t priority = 0;
  std::string cache_salt;
  Constraint constraint;
  std::vector<std::string> unknown;  // fields that nothing is known of, which were ignored
};

}  // namespace trireme
