// Small run configuration that tests vary in one point. For .cpp files only (it includes the JSON
// library).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/config/override.h"
#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "training/config/run_config.h"

namespace trireme::test {

// The whole configuration.
inline Json small() {
  return parse_json(R"({
    "model": {"model_type": "llama", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
              "bos_token_id": null, "eos_token_id": null},
    "output_dir": "runs/test", "train_batch_size": 12, "train_steps": 100,
    "data": {"data_path": "data/test"}
  })",
                    "small");
}

inline Json changed(const std::vector<std::string>& assignments) {
  Json document = small();
  ConfigReport report;
  for (const std::string& assignment : assignments)
    apply_override(run_schema(), parse_override(assignment), document, report);
  report.throw_if_errors("test");
  return document;
}

inline RunConfig read(const std::vector<std::string>& assignments, int world_size = 1) {
  return read_run_config(changed(assignments), world_size);
}

// Error message of small() with these changes; "": none.
inline std::string problem(const std::vector<std::string>& assignments, int world_size = 1) {
  try {
    read(assignments, world_size);
  } catch (const InputError& e) {
    const std::string what = e.what();
    return what.starts_with("configuration: ") ? what.substr(15) : what;
  }
  return "";
}

// The same on two ranks.
inline std::string refusal(const std::vector<std::string>& assignments) {
  return problem(assignments, 2);
}

// Assignments of both, in order.
inline std::vector<std::string> joined(std::vector<std::string> first,
                                       const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace trireme::test
