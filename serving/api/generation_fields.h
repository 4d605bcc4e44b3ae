// Fields shared by completions and chats. For .cpp files only (includes the JSON library).
#pragma once

#include "serving/api/constraint_fields.h"
#include "serving/api/field_table.h"
#include "serving/api/requests.h"

namespace trireme {

// kMaxStopBytes: of one stop string, and of one bad word.
inline constexpr size_t kMaxStops = 16, kMaxStopBytes = 256;
inline constexpr size_t kMaxBiases = 1024, kMaxBadWords = 1024;  // numbers of entries
// Maximum bytes of all bad words together: before each token, each word is compared with the end of
// the text.
inline constexpr size_t kMaxBadWordBytes = 16 << 10;
inline constexpr size_t kMaxListed = 1 << 20;  // entries of an array of token ids
inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxBeams = 64;  // per prompt

// JSON Schemas shared by several fields.
inline constexpr char kStringsShape[] =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})";
inline constexpr char kIdsShape[] = R"({"type":"array","items":{"type":"integer","minimum":0}})";

// These return or store the value of a field; ApiError 400 if it is invalid.

// Reads an array of token ids from 0 to INT32_MAX.
std::vector<int32_t> read_ids(const Field& field, const ApiJson& value);
// Reads a string, or an array of `min_entries` to `max_entries` strings. Each has 1 to `bytes`
// bytes.
std::vector<std::string> read_strings(const Field& field, const ApiJson& value, size_t min_entries,
                                      size_t max_entries, size_t bytes);
// Reads prompts: string | [string] | [int] | [[int]], at least one and at most max_prompts; [int]
// is one prompt. Texts may be empty, lists of ids may not.
std::vector<Prompt> read_prompts(const Field& field, const ApiJson& value, size_t max_prompts);
void read_bad_words(GenerationRequest& request, const ApiJson& value, const Field& field);
void read_logit_bias(GenerationRequest& request, const ApiJson& value, const Field& field);
void read_stream_options(GenerationRequest& request, const ApiJson& value, const Field& field);

// Checks fields against each other and against the limits. object: the request's body. ApiError
// 400.
void check_generation(const GenerationRequest& request, const ApiJson& object,
                      const RequestLimits& limits);
// Checks that the other fields are allowed with a beam search, or without one that length_penalty
// is absent or 1. beams: the larger one of n and best_of. ApiError 400.
void check_beam_search(const GenerationRequest& request, int64_t beams);
// Throws ApiError 400 unless all ids are below vocab_size.
void check_ids(const std::string& param, std::span<const int32_t> ids, int64_t vocab_size);

template <class Request>
void add_sampling_fields(FieldTable<Request>& t) {
  using G = GenerationRequest;
  t.number("temperature", &G::temperature, "1",
           "Sampling temperature, the divisor of the logits; 0: always the most probable token.")
      .range(0, 2);
  t.number("top_p", &G::top_p, "1",
           "Total probability of the most probable tokens to sample from (nucleus sampling).")
      .range(0, 1);
  t.integer("top_k", &G::top_k, "0",
            "Number of most probable tokens to sample from; 0 and -1: all.")
      .range(-1, 1e9);
  t.number("min_p", &G::min_p, "0",
           "Minimum probability of a token, as a fraction of the highest one.")
      .range(0, 1);
  t.number("typical_p", &G::typical_p, "1",
           "Locally typical sampling, after top_k, top_p and min_p: total probability of the "
           "tokens to sample from, those whose information is closest to the entropy first.")
      .range(0, 1);
  t.number("repetition_penalty", &G::repetition_penalty, "1",
           "Factor that divides the positive logits, and multiplies the negative ones, of tokens "
           "in prompt or completion.")
      .range(0.01, 100);
  t.number("frequency_penalty", &G::frequency_penalty, "0",
           "Number subtracted from a token's logit for each of its occurrences in the completion.")
      .range(-2, 2);
  t.number("presence_penalty", &G::presence_penalty, "0",
           "Number subtracted once from the logit of each token in the completion.")
      .range(-2, 2);
  t.other("seed", FieldKind::kInteger, "", "",
          "Random seed. Equal seeds give equal completions, up to rounding, whatever else the "
          "server computes. Absent: a different seed for each request.",
          [](Request& r, const ApiJson& v, const Field& f) { r.seed = read_integer(f, v); });
  t.other("logit_bias", FieldKind::kObject, "", R"({"additionalProperties":{"type":"number"}})",
          "Numbers added to the logits of tokens: {\"id\": -100 to 100}.", read_logit_bias)
      .size_range(0, kMaxBiases);
  t.other("bad_words", FieldKind::kArray, "", R"({"items":{"type":"string"}})",
          "Texts that must not be generated, up to 256 bytes each, 16384 together: the last token "
          "of a text is never sampled after its other tokens.",
          read_bad_words)
      .size_range(0, kMaxBadWords);
  t.boolean(
      "use_beam_search", &G::beam_search, "false",
      "Beam search with n (or best_of) beams, at most 64: returns the n most probable completions, "
      "the best first. Nothing is sampled, so temperature and seed have no effect. Not allowed "
      "with it: stop, stream, constraints, and other fields that change probabilities.");
  t.number("length_penalty", &G::length_penalty, "1",
           "With use_beam_search: exponent p of a completion's score, log-probability / (number of "
           "tokens)^p.")
      .range(-10, 10);
}

template <class Request>
void add_ending_fields(FieldTable<Request>& t) {
  using G = GenerationRequest;
  t.integer("n", &G::n, "1", "Number of choices per prompt.").range(1, 128);
  t.integer("min_tokens", &G::min_tokens, "0", "Minimum tokens of a completion.").range(0, 1e9);
  t.other("stop", FieldKind::kOther, "", kStringsShape,
          "Stop strings, up to 16 of up to 256 bytes; the completion ends before the first one.",
          [](Request& r, const ApiJson& v, const Field& f) {
            r.stop = read_strings(f, v, 0, kMaxStops, kMaxStopBytes);
          });
  t.other("stop_token_ids", FieldKind::kArray, "", R"({"items":{"type":"integer","minimum":0}})",
          "Token ids that end a completion, in addition to the model's EOS tokens.",
          [](Request& r, const ApiJson& v, const Field& f) { r.stop_token_ids = read_ids(f, v); })
      .size_range(0, 128);
  t.boolean("include_stop_str_in_output", &G::include_stop, "false",
            "Include the stop string or stop token in the completion.");
  t.boolean("ignore_eos", &G::ignore_eos, "false", "Continue after the model's EOS tokens.");
  t.boolean("skip_special_tokens", &G::skip_special, "true",
            "Leave special tokens out of the text.");
}

template <class Request>
void add_serving_fields(FieldTable<Request>& t) {
  using G = GenerationRequest;
  t.boolean("stream", &G::stream, "false", "Stream the response as server-sent events.");
  t.other(
      "stream_options", FieldKind::kObject, "",
      R"({"properties":{"include_usage":{"type":"boolean"},)"
      R"("continuous_usage_stats":{"type":"boolean"},"include_obfuscation":{"type":"boolean"}}})",
      "Options of a stream; include_usage adds a last event with token counts. Only with `stream`.",
      read_stream_options);
  t.integer("priority", &G::priority, "0",
            "Priority of the request: lower values run first. Requires --scheduling-policy "
            "priority; otherwise only 0 is allowed.")
      .range(-1e6, 1e6);
  t.string(
       "cache_salt", &G::cache_salt,
       "Salt of the prefix cache: prefixes are shared only with requests that have the same salt.")
      .size_range(1, 1024);
  add_constraint_fields(t);
  t.integer("prompt_logprobs", &G::prompt_logprobs, "",
            "Number of most probable tokens to return at each prompt position, with "
            "log-probabilities and ranks, besides the prompt's own token. Not with stream.")
      .range(0, static_cast<double>(kMaxTopLogprobs));
  t.boolean("return_tokens_as_token_ids", &G::tokens_as_ids, "false",
            "Name tokens by id, as in \"token_id:17\", in log-probabilities.");
  t.boolean("return_token_ids", &G::token_ids, "false",
            "Return prompt_token_ids, and the token_ids of each completion; an event of a stream "
            "has the new ones.");
}

}  // namespace trireme
