#include "training/run/run_facts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "training/data/data_identity.h"

namespace trireme {
namespace {

constexpr std::array kOfARank = {"cpu.threads_per_rank",
                                 "zero_optimization.offload_optimizer.nvme_path"};
// Machines may have copies of them in other folders.
constexpr std::array kTokenFiles = {"data.data_path", "data.train_data_path",
                                    "data.valid_data_path", "data.test_data_path"};

Json without_folders(Json value) {
  if (value.is_string()) return std::filesystem::path(value.get<std::string>()).filename().string();
  if (value.is_structured())
    for (Json& part : value) part = without_folders(std::move(part));
  return value;
}

void add_keys(const Json& json, const std::string& path, RankFacts& facts) {
  if (std::ranges::find(kOfARank, path) != kOfARank.end()) return;
  const bool files = std::ranges::find(kTokenFiles, path) != kTokenFiles.end();
  if (files || !json.is_object() || json.empty()) {
    facts[path] = (files ? without_folders(json) : json).dump();
    return;
  }
  for (const auto& [name, value] : json.items())
    add_keys(value, path.empty() ? name : concat(path, ".", name), facts);
}

}  // namespace

RankFacts config_facts(const RunConfig& config) {
  RankFacts facts;
  add_keys(run_config_to_json(config), "", facts);
  return facts;
}

RankFacts run_facts(const RunConfig& config, const std::string& examples) {
  RankFacts facts = config_facts(config);
  if (config.finetune.enabled) {
    facts["finetune (examples)"] = examples;
    return facts;
  }
  size_t number = 0;
  for (const TokenFileIdentity& file : data_identity(config.data, FileReading::kSamples))
    facts[concat(file.key, " (file ", ++number, ", ", file.name, ")")] = text(file);
  return facts;
}

}  // namespace trireme
