#include "training/data/data_identity.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

TokenFileIdentity identity_of(const std::string& key, const std::string& prefix,
                              FileReading of_index) {
  TokenFileIdentity out;
  out.key = key;
  out.prefix = prefix;
  out.name = std::filesystem::path(prefix).filename().string();
  ChecksumStream sum;
  out.index_bytes = add_file_identity(sum, prefix + ".idx", of_index);
  out.data_bytes = add_file_identity(sum, prefix + ".bin", FileReading::kSamples);
  out.checksum = checksum_text(sum.value());
  return out;
}

// Files of a key, in order.
std::vector<const TokenFileIdentity*> files_of(const std::vector<TokenFileIdentity>& files,
                                               const std::string& key) {
  std::vector<const TokenFileIdentity*> out;
  for (const TokenFileIdentity& file : files)
    if (file.key == key) out.push_back(&file);
  return out;
}

}  // namespace

std::string text(const TokenFileIdentity& identity) {
  return concat(identity.index_bytes, " + ", identity.data_bytes, " bytes, checksum ",
                identity.checksum);
}

std::vector<TokenFileIdentity> data_identity(const DataConfig& config, FileReading of_index) {
  std::vector<TokenFileIdentity> files;
  const auto add = [&](const std::string& key, const std::vector<BlendPart>& parts) {
    for (const BlendPart& part : parts) files.push_back(identity_of(key, part.prefix, of_index));
  };
  add(config.split.empty() ? "data.train_data_path" : "data.data_path", config.train);
  for (const ValidationSet& set : config.valid)
    add(concat("data.valid_data_path", set.name.empty() ? "" : ".", set.name), set.parts);
  add("data.test_data_path", config.test);
  return files;
}

Json data_identity_to_json(const std::vector<TokenFileIdentity>& files) {
  Json list = Json::array();
  for (const TokenFileIdentity& file : files)
    list.push_back({{"key", file.key},
                    {"file", file.name},
                    {"index_bytes", file.index_bytes},
                    {"data_bytes", file.data_bytes},
                    {"checksum", file.checksum}});
  return list;
}

std::vector<TokenFileIdentity> data_identity_from_json(const Json& json) {
  std::vector<TokenFileIdentity> files;
  if (!json.is_array()) return files;
  for (const Json& one : json) {
    TokenFileIdentity file;
    file.key = one.at("key").get<std::string>();
    file.name = one.at("file").get<std::string>();
    file.index_bytes = one.at("index_bytes").get<int64_t>();
    file.data_bytes = one.at("data_bytes").get<int64_t>();
    file.checksum = one.at("checksum").get<std::string>();
    files.push_back(std::move(file));
  }
  return files;
}

std::string changed_file(const std::vector<TokenFileIdentity>& saved,
                         const std::vector<TokenFileIdentity>& now) {
  for (const TokenFileIdentity& file : now) {
    const auto before = files_of(saved, file.key), today = files_of(now, file.key);
    const auto place = static_cast<size_t>(std::ranges::find(today, &file) - today.begin());
    // Files with other names are other data, which a configuration may use.
    if (place >= before.size() || before[place]->name != file.name) continue;
    const TokenFileIdentity& was = *before[place];
    if (was.checksum == file.checksum && was.index_bytes == file.index_bytes &&
        was.data_bytes == file.data_bytes)
      continue;
    return concat(file.key, " ", file.prefix, " has changed since the checkpoint: expected ",
                  text(was), ", got ", text(file));
  }
  return "";
}

}  // namespace trireme
