#include "serving/api/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace trireme {
namespace {

int32_t read_id(const std::string& param, const ApiJson& value) {
  if (!value.is_number_integer() && !is_long_integer(value))
    fail_type(param, "an array of token ids", value);
  if (value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX) return value.get<int32_t>();
  fail_field(param, param, ": expected token ids from 0 to ", INT32_MAX);
}

std::vector<int32_t> ids_of(const std::string& param, const ApiJson& value) {
  if (!value.is_array()) fail_type(param, "an array of token ids", value);
  if (value.size() > kMaxListed)
    fail_field(param, param, " has ", value.size(), " entries, at most ", kMaxListed,
               " are allowed");
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const ApiJson& id : value) ids.push_back(read_id(param, id));
  return ids;
}

}  // namespace

std::vector<int32_t> read_ids(const Field& field, const ApiJson& value) {
  return ids_of(field.name, value);
}

std::vector<std::string> read_strings(const Field& field, const ApiJson& value, size_t min_entries,
                                      size_t max_entries, size_t bytes) {
  if (value.is_string()) return {read_text(field.name, value, 1, bytes)};
  if (!value.is_array()) fail_type(field.name, "a string or an array of strings", value);
  if (value.size() < min_entries || value.size() > max_entries)
    fail_field(field.name, field.name, " has ", value.size(), " entries, ", min_entries, " to ",
               max_entries, " are allowed");
  std::vector<std::string> strings;
  for (const ApiJson& one : value) strings.push_back(read_text(field.name, one, 1, bytes));
  return strings;
}

std::vector<Prompt> read_prompts(const Field& field, const ApiJson& value, size_t max_prompts) {
  const std::string& param = field.name;
  const auto text_prompt = [](const ApiJson& v) { return Prompt{.text = v.get<std::string>()}; };
  if (value.is_string()) return {text_prompt(value)};
  if (!value.is_array())
    fail_type(param, "a string, or an array of strings, of token ids or of arrays of them", value);
  if (value.empty()) fail_field(param, param, " must not be empty");
  if (value[0].is_number() || is_long_integer(value[0]))
    return {{.tokens = ids_of(param, value), .is_text = false}};
  if (value.size() > max_prompts)
    fail_field(param, param, " has ", value.size(), " entries, at most ", max_prompts,
               " are allowed");
  std::vector<Prompt> prompts;
  for (const ApiJson& one : value) {
    if (one.is_string()) {
      prompts.push_back(text_prompt(one));
      continue;
    }
    if (one.is_array() && one.empty()) fail_field(param, param, " contains an empty array");
    prompts.push_back({.tokens = ids_of(param, one), .is_text = false});
  }
  return prompts;
}

void read_bad_words(GenerationRequest& request, const ApiJson& value, const Field& field) {
  request.bad_words = read_strings(field, value, 0, kMaxBadWords, kMaxStopBytes);
  size_t bytes = 0;
  for (const std::string& word : request.bad_words) bytes += word.size();
  if (bytes > kMaxBadWordBytes)
    fail_field(field.name, field.name, " have ", bytes, " bytes together, at most ",
               kMaxBadWordBytes, " are allowed");
}

void read_logit_bias(GenerationRequest& request, const ApiJson& value, const Field& field) {
  for (const auto& [name, bias] : value.items()) {
    int32_t id = -1;
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, id);
    if (read.ec != std::errc() || read.ptr != end || id < 0)
      fail_field(field.name, field.name, ": \"", name.substr(0, 40), "\" is not a token id");
    if (!bias.is_number() && !is_long_integer(bias))
      fail_type(field.name, "an object of numbers", bias);
    const double number = is_long_integer(bias) ? HUGE_VAL : bias.get<double>();
    if (number < -100 || number > 100)
      fail_field(field.name, field.name, ": the bias of ", id, " is ", json_text(bias),
                 ", expected -100 to 100");
    request.logit_bias.emplace_back(id, number);
  }
}

void read_stream_options(GenerationRequest& request, const ApiJson& value, const Field& field) {
  for (const auto& [name, flag] : value.items()) {
    if (flag.is_null()) continue;
    if (!flag.is_boolean()) fail_type(concat(field.name, ".", name), "true or false", flag);
    if (name == "include_usage")
      request.include_usage = flag.get<bool>();
    else if (name == "continuous_usage_stats")
      request.usage_in_each = flag.get<bool>();
    else if (name != "include_obfuscation")  // padding of events, which have none
      request.unknown.push_back(concat(field.name, ".", name.substr(0, 64)));
  }
  if (!request.include_usage) request.usage_in_each = false;
}

void check_ids(const std::string& param, std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids)
    if (id >= vocab_size)
      fail_field(param, param, ": token id ", id,
                 " is out of range, expected below the vocabulary size ", vocab_size);
}

void check_beam_search(const GenerationRequest& r, int64_t beams) {
  if (!r.beam_search) {
    if (r.length_penalty != 1)
      fail_field("length_penalty", "length_penalty is only allowed with use_beam_search");
    return;
  }
  const auto refuse = [](bool given, const char* param) {
    if (given) fail_field(param, param, " is not available with use_beam_search");
  };
  refuse(r.stream, "stream");
  refuse(r.top_p != 1, "top_p");
  refuse(r.top_k > 0, "top_k");
  refuse(r.min_p != 0, "min_p");
  refuse(r.typical_p != 1, "typical_p");
  refuse(r.repetition_penalty != 1, "repetition_penalty");
  refuse(r.frequency_penalty != 0, "frequency_penalty");
  refuse(r.presence_penalty != 0, "presence_penalty");
  refuse(!r.logit_bias.empty(), "logit_bias");
  refuse(!r.bad_words.empty(), "bad_words");
  refuse(!r.stop.empty(), "stop");
  refuse(r.constraint.kind != Constraint::Kind::kNone, r.constraint.param.c_str());
  if (beams > kMaxBeams)
    fail_field(beams > r.n ? "best_of" : "n", "beam search: expected at most ", kMaxBeams,
               " beams, got ", beams);
}

void check_generation(const GenerationRequest& r, const ApiJson& object,
                      const RequestLimits& limits) {
  const auto given = [&](const char* name) {
    return object.contains(name) && !object[name].is_null();
  };
  if (given("stream_options") && !r.stream)
    fail_field("stream_options", "stream_options is only allowed with stream");
  if (r.prompt_logprobs >= 0 && r.stream)
    fail_field("prompt_logprobs", "prompt_logprobs is not available with stream");
  if (r.max_tokens && r.min_tokens > *r.max_tokens)
    fail_field("min_tokens", "min_tokens must be <= max_tokens, which is ", *r.max_tokens);
  if (r.priority != 0 && !limits.has_priorities)
    fail_field("priority", "priority must be 0: this server runs requests in order of ",
               "arrival (--scheduling-policy fcfs)");
  check_ids("stop_token_ids", r.stop_token_ids, limits.vocab_size);
  for (const auto& [id, bias] : r.logit_bias)
    check_ids("logit_bias", std::span(&id, 1), limits.vocab_size);
}

}  // namespace trireme
