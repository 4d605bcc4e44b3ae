#include "training/run/run_facts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/io/text_files.h"
#include "training/data/data_identity.h"

namespace trireme {
namespace {

constexpr std::array kOfARank = {"cpu.threads_per_rank",
                                 "zero_optimization.offload_optimizer.nvme_path"};
// Keys whose files may be in different folders on different machines.
constexpr std::array kDataFiles = {"data.data_path",       "data.train_data_path",
                                   "data.valid_data_path", "data.test_data_path",
                                   "finetune.train_file",  "finetune.valid_file"};

Json without_folders(Json value) {
  if (value.is_string()) return std::filesystem::path(value.get<std::string>()).filename().string();
  if (value.is_structured())
    for (Json& part : value) part = without_folders(std::move(part));
  return value;
}

void add_keys(const Json& json, const std::string& path, RankFacts& facts) {
  if (std::ranges::find(kOfARank, path) != kOfARank.end()) return;
  const bool files = std::ranges::find(kDataFiles, path) != kDataFiles.end();
  if (files || !json.is_object() || json.empty()) {
    facts[path] = (files ? without_folders(json) : json).dump();
    return;
  }
  for (const auto& [name, value] : json.items())
    add_keys(value, path.empty() ? name : concat(path, ".", name), facts);
}

void add_files(const RunConfig& config, RankFacts& facts) {
  size_t number = 0;
  for (const auto* files : {&config.finetune.train_files, &config.finetune.valid_files})
    for (const TextFile& file :
         files->empty() ? std::vector<TextFile>() : list_text_files(*files)) {
      ChecksumStream sum;
      const int64_t bytes = add_file_identity(sum, file.path, FileReading::kSamples);
      facts[concat("finetune (file ", ++number, ")")] =
          concat(bytes, " bytes, checksum ", checksum_text(sum.value()));
    }
  for (const TokenFileIdentity& file : data_identity(config.data, FileReading::kSamples))
    facts[concat(file.key, " (file ", ++number, ", ", file.name, ")")] = text(file);
}

}  // namespace

RankFacts config_facts(const RunConfig& config) {
  RankFacts facts;
  add_keys(run_config_to_json(config), "", facts);
  return facts;
}

RankFacts run_facts(const RunConfig& config) {
  RankFacts facts = config_facts(config);
  try {
    add_files(config, facts);
  } catch (const InputError& e) {
    facts["files"] = e.what();  // if all ranks have this error, opening the files reports it
  }
  return facts;
}

}  // namespace trireme
