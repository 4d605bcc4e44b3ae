#include "commands/speculative_config.h"

#include <algorithm>

#include "engine/io/strict_json.h"

namespace trireme {
namespace {

constexpr char kOption[] = "--speculative-config";

struct Member {
  const char* name;
  int64_t* value;
  int64_t least, most;
};

}  // namespace

SpeculationConfig read_speculative_config(const std::string& json_text) {
  SpeculationConfig config;
  if (json_text.empty()) return config;
  const auto json = parse_strict_json<nlohmann::ordered_json>(json_text, kOption);
  if (!json.is_object() || !json.contains("method") || !json.contains("num_speculative_tokens"))
    fail_input(kOption, " needs {\"method\": \"ngram\", \"num_speculative_tokens\": N}");
  const Member members[] = {{"num_speculative_tokens", &config.tokens, 1, 64},
                            {"prompt_lookup_max", &config.longest, 1, 64},
                            {"prompt_lookup_min", &config.shortest, 1, 64},
                            {"disable_by_batch_size", &config.most_sequences, 1, 1 << 20}};
  for (const auto& [name, value] : json.items()) {
    if (name == "method") {
      if (value != "ngram")
        fail_input(kOption, ": method ", value.dump().substr(0, 40),
                   ": only \"ngram\" is done here");
      continue;
    }
    const auto* member = std::find_if(std::begin(members), std::end(members),
                                      [&key = name](const Member& m) { return key == m.name; });
    if (member == std::end(members))
      fail_input(kOption, ": nothing is known of ", name.substr(0, 60));
    *member->value = strict_size(value, concat(kOption, ": ", name));
    if (*member->value < member->least || *member->value > member->most)
      fail_input(kOption, ": ", name, " is ", *member->value, ", not from ", member->least, " to ",
                 member->most);
  }
  if (config.shortest > config.longest)
    fail_input(kOption, ": prompt_lookup_min ", config.shortest, " is above prompt_lookup_max, ",
               config.longest);
  return config;
}

}  // namespace trireme
