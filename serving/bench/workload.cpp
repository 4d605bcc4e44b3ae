#include "serving/bench/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/normal_number.h"
#include "engine/io/mapped_file.h"
#include "engine/io/mapping_guard.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMaxFileBytes = int64_t{4} << 30;
// English words that, after a space, are one token in nearly every vocabulary.
constexpr std::array<const char*, 16> kWords = {"the",  "of",   "and", "to",   "in",   "that",
                                                "it",   "is",   "was", "with", "from", "they",
                                                "this", "have", "or",  "one"};

struct PromptText {
  OrderedJson value;  // text, token ids or messages
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;  // 0: WorkloadOptions::output_tokens
};

OrderedJson as_messages(const std::string& text) {
  return OrderedJson::array({OrderedJson{{"role", "user"}, {"content", text}}});
}

PromptText random_prompt(const WorkloadOptions& options, uint64_t number,
                         const std::string& stream) {
  const RandomKey shared{options.seed, stream_id("prefix of " + stream)};
  const RandomKey own{options.seed, stream_id("prompts of " + stream)};
  PromptText out{.value = OrderedJson::array(), .input_tokens = options.input_tokens};
  std::string words;
  for (int64_t i = 0; i < options.input_tokens; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const uint32_t word =
        i < options.prefix_tokens
            ? philox_word(shared, at)
            : philox_word(own, number * static_cast<uint64_t>(options.input_tokens) + at);
    if (options.chat)
      words.append(i > 0 ? " " : "").append(kWords[word % kWords.size()]);
    else
      out.value.push_back(word % static_cast<uint64_t>(options.vocab_size));
  }
  if (!options.chat) return out;
  out.value = as_messages(words);
  out.input_tokens = 0;  // the chat template adds some
  return out;
}

std::string_view text_of(const MappedFile& file, const WorkloadOptions& options) {
  if (file.size() > kMaxFileBytes)
    fail_input("--dataset-path ", options.path, " has ", file.size(), " bytes, expected at most ",
               kMaxFileBytes);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Value of a string member; "" otherwise.
std::string string_of(const OrderedJson& object, const char* name) {
  if (!object.is_object()) return "";
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::vector<PromptText> sharegpt_prompts(const WorkloadOptions& options, int64_t count) {
  const MappedFile file(options.path);
  const OrderedJson all = parse_json_text<OrderedJson>(text_of(file, options));
  check_mapping(file.bytes());
  if (!all.is_array())
    fail_input("--dataset-path ", options.path, ": expected a JSON array of conversations");
  std::vector<PromptText> out;
  for (const OrderedJson& one : all) {
    if (std::ssize(out) == count) break;
    const auto turns = one.is_object() ? one.find("conversations") : one.end();
    if (turns == one.end() || !turns->is_array() || turns->size() < 2) continue;
    const std::string said = string_of((*turns)[0], "value");
    if (said.empty()) continue;
    out.push_back({.value = options.chat ? as_messages(said) : OrderedJson(said)});
  }
  return out;
}

PromptText custom_prompt(const OrderedJson& line, const WorkloadOptions& options,
                         const std::string& where) {
  PromptText out;
  const auto member = [&](const char* name) -> const OrderedJson* {
    const auto at = line.find(name);
    return at == line.end() ? nullptr : &*at;
  };
  if (!line.is_object()) fail_input(where, ": expected a JSON object");
  if (const OrderedJson* messages = member("messages"); messages != nullptr && options.chat) {
    if (!messages->is_array()) fail_input(where, ": expected an array for \"messages\"");
    out.value = *messages;
  } else if (const std::string prompt = string_of(line, "prompt"); !prompt.empty()) {
    out.value = options.chat ? as_messages(prompt) : OrderedJson(prompt);
  } else {
    fail_input(where, ": missing \"prompt\"", options.chat ? " or \"messages\"" : "");
  }
  if (const OrderedJson* tokens = member("output_tokens"); tokens != nullptr)
    out.output_tokens = strict_size(*tokens, where + ": \"output_tokens\"");
  return out;
}

std::vector<PromptText> custom_prompts(const WorkloadOptions& options, int64_t count) {
  const MappedFile file(options.path);
  std::string_view rest = text_of(file, options);
  std::vector<PromptText> out;
  for (int64_t number = 1; !rest.empty() && std::ssize(out) < count; ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    check_mapping(file.bytes());
    const std::string where = concat("--dataset-path ", options.path, ", line ", number);
    out.push_back(custom_prompt(parse_strict_json<OrderedJson>(line, where), options, where));
  }
  return out;
}

std::string body_of(const WorkloadOptions& options, const PromptText& prompt,
                    const OrderedJson& extra) {
  OrderedJson body = {{"model", options.model}};
  body[options.chat ? "messages" : "prompt"] = prompt.value;
  body["max_tokens"] = prompt.output_tokens > 0 ? prompt.output_tokens : options.output_tokens;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (options.dataset == "random") body["ignore_eos"] = true;
  for (const auto& [name, value] : extra.items()) {
    if (value.is_null())
      body.erase(name);
    else
      body[name] = value;
  }
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Sequence of random numbers of one stream.
class Draws {
 public:
  explicit Draws(uint64_t seed) : key_{seed, stream_id("arrivals")} {}
  double normal() { return philox_normal(key_, next_++); }
  double uniform() {  // in (0, 1)
    const PhiloxBlock words = philox({key_.seed, key_.stream + 1}, next_++);
    const uint64_t bits = (uint64_t{words[0]} << 20) ^ words[1];
    return (static_cast<double>(bits & ((uint64_t{1} << 52) - 1)) + 0.5) * 0x1p-52;
  }
  // Unit scale (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

}  // namespace

std::vector<LoadRequest> make_requests(const WorkloadOptions& options, int64_t count,
                                       const std::string& stream) {
  OrderedJson extra = OrderedJson::object();
  if (!options.extra_body.empty())
    extra = parse_strict_json<OrderedJson>(options.extra_body, "--extra-body");
  if (!extra.is_object())
    fail_input("--extra-body ", options.extra_body, ": expected a JSON object");
  std::vector<PromptText> from_file;
  const bool random = options.dataset == "random";
  if (!random) {
    from_file = options.dataset == "sharegpt" ? sharegpt_prompts(options, count)
                                              : custom_prompts(options, count);
    if (from_file.empty()) fail_input("--dataset-path ", options.path, " has no prompts");
  }
  std::vector<LoadRequest> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<size_t>(i);
    const PromptText prompt = random ? random_prompt(options, static_cast<uint64_t>(i), stream)
                                     : from_file[number % from_file.size()];
    out.push_back({.body = body_of(options, prompt, extra), .input_tokens = prompt.input_tokens});
  }
  return out;
}

std::vector<double> arrival_times(int64_t count, double rate, double burstiness, uint64_t seed) {
  std::vector<double> out(static_cast<size_t>(count));
  if (rate <= 0 || out.empty()) return out;
  TRIREME_CHECK(burstiness > 0, "expected a burstiness above 0, got ", burstiness);
  Draws draws(seed);
  double last = 0;
  for (double& time : out) time = last += draws.gamma(burstiness);
  if (last <= 0) return out;  // so bursty that all arrive at once
  const double scale = static_cast<double>(count) / rate / last;
  for (double& time : out) time *= scale;
  return out;
}

}  // namespace trireme
