// Model configurations read from config.json, and the errors of invalid ones.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "transformer/families/config_json.h"

namespace trireme::test {

inline Json llama_json(const std::string& more = "") {
  return parse_json(R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 64,
                       "intermediate_size": 172, "num_hidden_layers": 2,
                       "num_attention_heads": 4)" +
                        more + "}",
                    "llama");
}

inline ModelConfig read_model(const Json& json) {
  ConfigReport report;
  const ModelConfig config = read_model_config(json, "model", report);
  report.throw_if_errors("test");
  return config;
}

inline std::string model_problem(const Json& json) {
  ConfigReport report;
  read_model_config(json, "model", report);
  if (report.errors().size() > 1) return "several: " + report.errors()[0] + report.errors()[1];
  return report.ok() ? "" : report.errors().front();
}

}  // namespace trireme::test
