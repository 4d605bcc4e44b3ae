// What clients ask for (OpenAI's API with the extensions of vLLM), checked and in the server's own words.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/api/field.h"

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

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special = true;
  int64_t best_of =
      0;  // so many choices of each prompt are computed, at least n, and the best n told; 0: n
};

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

struct ChatRequest : GenerationRequest {
  // For ChatTemplate::render(): messages, tools, add_generation_prompt and what the request says of the
  // template's variables, checked; never null.
  std::shared_ptr<const nlohmann::ordered_json> variables;
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;               // of kNamed
  std::set<std::string> strict_tools;  // their names
  bool parallel_tool_calls = true;
  bool add_special = false;
};

struct EmbeddingsRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  std::optional<int64_t> dimensions;
  std::vector<std::string> unknown;
};

struct TokenizeRequest {
  std::string model;
  std::string prompt;                                       // of a text
  std::shared_ptr<const nlohmann::ordered_json> variables;  // of a chat; null: a text
  bool add_special = true;
  bool token_strings = false;
  std::vector<std::string> unknown;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  std::vector<std::string> unknown;
};

struct WeightsRequest {
  std::string model;  // empty: what is served
  std::string mode = "wait";
  std::vector<std::string> unknown;
};

// Of an adapter that is to be served, or not any more: without a path.
struct AdapterRequest {
  std::string name, path;
  std::vector<std::string> unknown;
};

// From the body of a request. ApiError (400, or 501 for what this server does not do) names the field.
CompletionRequest parse_completion(std::string_view body, const RequestLimits& limits = {});
ChatRequest parse_chat(std::string_view body, const RequestLimits& limits = {});
EmbeddingsRequest parse_embeddings(std::string_view body, const RequestLimits& limits = {});
TokenizeRequest parse_tokenize(std::string_view body, const RequestLimits& limits = {});
DetokenizeRequest parse_detokenize(std::string_view body, const RequestLimits& limits = {});
WeightsRequest parse_weights(std::string_view body, const RequestLimits& limits = {});
AdapterRequest parse_load_adapter(std::string_view body, const RequestLimits& limits = {});
AdapterRequest parse_unload_adapter(std::string_view body, const RequestLimits& limits = {});

}  // namespace trireme
