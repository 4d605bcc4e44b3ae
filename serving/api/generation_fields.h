// The fields that completions and chats have in common. For .cpp files only (it includes the JSON
// library).
#pragma once

#include "serving/api/constraint_fields.h"
#include "serving/api/field_table.h"
#include "serving/api/requests.h"

namespace trireme {

inline constexpr size_t kMostStops = 16, kMostStopBytes = 256;
inline constexpr size_t kMostBiases = 1024, kMostBadWords = 1024;
// Of all bad words together: each is compared with the text's end before each token.
inline constexpr size_t kMostBadWordBytes = 16 << 10;
inline constexpr size_t kMostListed = 1 << 20;  // entries of any array
inline constexpr int64_t kMostTopLogprobs = 20;
inline constexpr int64_t kMostBeams = 64;

// JSON Schemas that several fields share.
inline constexpr char kStringsShape[] =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})";
inline constexpr char kIdsShape[] = R"({"type":"array","items":{"type":"integer","minimum":0}})";

std::vector<int32_t> read_ids(const Field& field, const ApiJson& value);
// A string, or an array of `fewest` to `largest` of them, none empty and none above `bytes`.
std::vector<std::string> read_strings(const Field& field, const ApiJson& value, size_t fewest,
                                      size_t largest, size_t bytes);
// string | [string] | [int] | [[int]]
std::vector<Prompt> read_prompts(const Field& field, const ApiJson& value, size_t most);
void read_bad_words(GenerationRequest& request, const ApiJson& value, const Field& field);
void read_logit_bias(GenerationRequest& request, const ApiJson& value, const Field& field);
void read_stream_options(GenerationRequest& request, const ApiJson& value, const Field& field);

// What several fields together must be.
void check_generation(const GenerationRequest& request, const ApiJson& object,
                      const RequestLimits& limits);
// `beams`: n, or best_of.
void check_beam_search(const GenerationRequest& request, int64_t beams);
void check_ids(const std::string& param, std::span<const int32_t> ids, int64_t vocab_size);

template <class Request>
void add_sampling_fields(FieldTable<Request>& t) {
  using G = GenerationRequest;
  t.number("temperature", &G::temperature, "1", "Divides the logits; 0: the most probable token.")
      .range(0, 2);
  t.number("top_p", &G::top_p, "1",
           "Only the smallest set of tokens whose probabilities reach this.")
      .range(0, 1);
  t.integer("top_k", &G::top_k, "0", "Only the most probable tokens; 0 and -1: all.")
      .range(-1, 1e9);
  t.number("min_p", &G::min_p, "0", "No token below this share of the largest probability.")
      .range(0, 1);
  t.number("typical_p", &G::typical_p, "1",
           "Of what top_k, top_p and min_p leave only the tokens about as probable as is to be "
           "expected, with this much of the probability.")
      .range(0, 1);
  t.number("repetition_penalty", &G::repetition_penalty, "1",
           "Divides positive and multiplies negative logits of tokens of prompt and text.")
      .range(0.01, 100);
  t.number("frequency_penalty", &G::frequency_penalty, "0",
           "Subtracted from a logit as often as its token is in the text.")
      .range(-2, 2);
  t.number("presence_penalty", &G::presence_penalty, "0",
           "Subtracted from logits of tokens that are in the text.")
      .range(-2, 2);
  t.other(
      "seed", FieldKind::kInteger, "", "",
      "Equal seeds give equal texts up to rounding, whatever else the server does; absent: another "
      "each time.",
      [](Request& r, const ApiJson& v, const Field& f) { r.seed = read_integer(f, v); });
  t.other("logit_bias", FieldKind::kObject, "", R"({"additionalProperties":{"type":"number"}})",
          "Added to the logits of these tokens: {\"id\": -100 to 100}.", read_logit_bias)
      .entries(0, kMostBiases);
  t.other("bad_words", FieldKind::kArray, "", R"({"items":{"type":"string"}})",
          "Texts whose last token is not chosen where the others stand before it; of up to 256 "
          "bytes, and 16384 together.",
          read_bad_words)
      .entries(0, kMostBadWords);
  t.boolean(
      "use_beam_search", &G::beam_search, "false",
      "The n most probable texts that a search of n (or best_of) beams finds, at most 64, the "
      "best first. Nothing is drawn: temperature and seed change nothing, and what else "
      "changes probabilities, stop, stream and constraints are refused.");
  t.number("length_penalty", &G::length_penalty, "1",
           "With use_beam_search: a text's log-probability is divided by its tokens to this power.")
      .range(-10, 10);
}

template <class Request>
void add_ending_fields(FieldTable<Request>& t) {
  using G = GenerationRequest;
  t.integer("n", &G::n, "1", "Choices for each prompt.").range(1, 128);
  t.integer("min_tokens", &G::min_tokens, "0", "The text does not end before so many tokens.")
      .range(0, 1e9);
  t.other("stop", FieldKind::kOther, "", kStringsShape,
          "Texts that end the text, which ends before them; up to 16 of up to 256 bytes.",
          [](Request& r, const ApiJson& v, const Field& f) {
            r.stop = read_strings(f, v, 0, kMostStops, kMostStopBytes);
          });
  t.other("stop_token_ids", FieldKind::kArray, "", R"({"items":{"type":"integer","minimum":0}})",
          "Tokens that end the text beside the model's own.",
          [](Request& r, const ApiJson& v, const Field& f) { r.stop_token_ids = read_ids(f, v); })
      .entries(0, 128);
  t.boolean("include_stop_str_in_output", &G::include_stop, "false",
            "What ends the text belongs to it.");
  t.boolean("ignore_eos", &G::ignore_eos, "false", "The model's own end tokens end nothing.");
  t.boolean("skip_special_tokens", &G::skip_special, "true", "Special tokens have no text.");
}

template <class Request>
void add_serving_fields(FieldTable<Request>& t) {
  using G = GenerationRequest;
  t.boolean("stream", &G::stream, "false", "The text comes as server-sent events.");
  t.other(
      "stream_options", FieldKind::kObject, "",
      R"({"properties":{"include_usage":{"type":"boolean"},)"
      R"("continuous_usage_stats":{"type":"boolean"},"include_obfuscation":{"type":"boolean"}}})",
      "With `stream` only: include_usage has a last event tell the numbers of tokens.",
      read_stream_options);
  t.integer("priority", &G::priority, "0",
            "Lower ones are computed first, where the server is started with --scheduling-policy "
            "priority; elsewhere 0.")
      .range(-1e6, 1e6);
  t.string("cache_salt", &G::cache_salt,
           "Cached beginnings of prompts are shared with requests of the same salt only.")
      .entries(1, 1024);
  add_constraint_fields(t);
  t.integer(
       "prompt_logprobs", &G::prompt_logprobs, "",
       "Log-probabilities and ranks of the prompt's tokens and of so many of the most probable; "
       "not with stream.")
      .range(0, static_cast<double>(kMostTopLogprobs));
  t.boolean("return_tokens_as_token_ids", &G::tokens_as_ids, "false",
            "Log-probabilities name tokens as \"token_id:17\".");
  t.boolean(
      "return_token_ids", &G::token_ids, "false",
      "Answers have token_ids, those of each text, and prompt_token_ids; streams what is new.");
}

}  // namespace trireme
