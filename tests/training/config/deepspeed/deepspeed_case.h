// Run configurations with files of DeepSpeed.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "optim/adamw.h"
#include "tests/support/source_folder.h"
#include "tests/training/config/small_run.h"
#include "training/config/run_config.h"

namespace trireme::test {

inline std::string shipped_file(const std::string& name) {
  return concat(test::source_folder(), "/tests/training/config/deepspeed/", name, ".json");
}

// small() with this DeepSpeed configuration and these changes.
inline RunConfig with_deepspeed(const Json& deepspeed,
                                const std::vector<std::string>& assignments = {}, int ranks = 1) {
  Json document = test::changed(assignments);
  document["deepspeed"] = deepspeed;
  return read_run_config(document, ranks);
}

inline RunConfig with_deepspeed(const char* deepspeed,
                                const std::vector<std::string>& assignments = {}) {
  return with_deepspeed(parse_json(deepspeed, "deepspeed"), assignments);
}

inline Betas betas_of(const RunConfig& config) {
  return dynamic_cast<const AdamW&>(*config.optimizer.rule).betas;
}

inline bool notes_say(const RunConfig& config, const std::string& words) {
  return std::ranges::any_of(
      config.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

}  // namespace trireme::test
