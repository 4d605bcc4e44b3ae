#include "commands/serving/speculative_config.h"

#include <algorithm>

#include "engine/io/strict_json.h"

namespace trireme {
namespace {

constexpr char kSpeculativeOption[] = "--speculative-config";

enum class Method { kAny, kNgram };  // method that a member belongs to

struct Member {
  const char* name;
  int64_t* value;
  int64_t least, most;
  Method method = Method::kAny;
};

void read_number(const Member& member, const nlohmann::ordered_json& value) {
  *member.value = strict_size(value, concat(kSpeculativeOption, ": ", member.name));
  if (*member.value < member.least || *member.value > member.most)
    fail_input(kSpeculativeOption, ": ", member.name, " is ", *member.value, ", expected ",
               member.least, " to ", member.most);
}

// True if the method is draft_model.
bool read_method(const nlohmann::ordered_json& json) {
  const auto& method = json.at("method");
  if (method != "ngram" && method != "draft_model")
    fail_input(kSpeculativeOption, ": method ", method.dump().substr(0, 40),
               " is not supported; supported: \"ngram\", \"draft_model\"");
  const bool drafts = method == "draft_model";
  if (json.contains("model") != drafts)
    fail_input(kSpeculativeOption,
               drafts ? ": method \"draft_model\" needs \"model\", the draft's directory"
                      : ": \"model\" requires method \"draft_model\"");
  return drafts;
}

}  // namespace

SpeculativeOptions read_speculative_config(const std::string& json_text) {
  SpeculativeOptions options;
  if (json_text.empty()) return options;
  const auto json = parse_strict_json<nlohmann::ordered_json>(json_text, kSpeculativeOption);
  if (!json.is_object() || !json.contains("method") || !json.contains("num_speculative_tokens"))
    fail_input(
        kSpeculativeOption,
        ": expected {\"method\": \"ngram\", \"num_speculative_tokens\": N}, or ",
        "{\"method\": \"draft_model\", \"model\": DIRECTORY, \"num_speculative_tokens\": N}");
  SpeculationConfig& config = options.config;
  const Member members[] = {
      {"num_speculative_tokens", &config.tokens, 1, 64},
      {"disable_by_batch_size", &config.max_running_sequences, 1, 1 << 20},
      {"prompt_lookup_max", &config.prompt_lookup_max, 1, 64, Method::kNgram},
      {"prompt_lookup_min", &config.prompt_lookup_min, 1, 64, Method::kNgram}};
  const bool drafts = read_method(json);
  for (const auto& [name, value] : json.items()) {
    if (name == "method") continue;
    if (name == "model") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty())
        fail_input(kSpeculativeOption, ": model is ", value.dump().substr(0, 40),
                   ", expected a directory");
      options.draft = value.get<std::string>();
      continue;
    }
    const auto* member = std::find_if(std::begin(members), std::end(members),
                                      [&key = name](const Member& m) { return key == m.name; });
    if (member == std::end(members))
      fail_input(kSpeculativeOption, ": unknown key ", name.substr(0, 60));
    if (drafts && member->method == Method::kNgram)
      fail_input(kSpeculativeOption, ": ", name, " requires method \"ngram\"");
    read_number(*member, value);
  }
  if (config.prompt_lookup_min > config.prompt_lookup_max)
    fail_input(kSpeculativeOption, ": prompt_lookup_min ", config.prompt_lookup_min,
               " is above prompt_lookup_max, ", config.prompt_lookup_max);
  return options;
}

}  // namespace trireme
