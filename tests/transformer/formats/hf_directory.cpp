#include "tests/transformer/formats/hf_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/convert_float.h"
#include "engine/io/safetensors_directory.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/model_source.h"

namespace trireme::test {
namespace {

std::vector<std::byte> bytes_of(const FileTensor& t) {
  std::vector<std::byte> out(t.values.size() * static_cast<size_t>(dtype_size(t.dtype)));
  if (t.dtype == DType::kI32) {
    for (size_t i = 0; i < t.values.size(); ++i)
      reinterpret_cast<int32_t*>(out.data())[i] = static_cast<int32_t>(t.values[i]);
    return out;
  }
  dispatch_float("bytes_of", t.dtype, [&]<class T>() {
    for (size_t i = 0; i < t.values.size(); ++i)
      reinterpret_cast<T*>(out.data())[i] = convert_float<T>(t.values[i]);
  });
  return out;
}

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, FileTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, t] : tensors) specs.push_back({name, t.dtype, t.shape});
  SafetensorsWriter writer(path, specs, metadata);
  for (const auto& [name, t] : tensors) writer.write(bytes_of(t));
  writer.commit();
}

void expect_same_bytes(const std::string& a, const std::string& b) {
  const SafetensorsDirectory left(a), right(b);
  ASSERT_EQ(left.tensors().size(), right.tensors().size());
  for (const SourceTensor& t : left.tensors()) {
    const SourceTensor* other = right.find(t.name);
    ASSERT_NE(other, nullptr) << t.name;
    EXPECT_EQ(t.dtype_name, other->dtype_name) << t.name;
    EXPECT_EQ(t.shape, other->shape) << t.name;
    const auto x = left.bytes(t), y = right.bytes(*other);
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << t.name;
  }
}

HfFiles::HfFiles(const std::string& golden, DType dtype) {
  const std::string folder = concat(test::source_folder(), "/tests/golden/", golden);
  config_ = std::make_shared<Json>(read_json_file<Json>(folder + "/config.json"));
  const SafetensorsReader reader(folder + "/weights.safetensors");
  for (const SafetensorsEntry& entry : reader.entries())
    tensors[entry.name] = {dtype, entry.shape, to_doubles(reader.tensor(entry.name))};
}

HfFiles HfFiles::random(const Json& config, DType dtype) {
  ConfigReport report;
  const ModelConfig model = read_model_config(config, "", report);
  report.throw_if_errors("test");
  HfFiles files;
  files.config_ = std::make_shared<Json>(config);
  for (const ModelParameter& p : model_parameters(model)) {
    int64_t n = 1;
    for (const int64_t size : p.shape) n *= size;
    files.tensors[p.name] = {dtype, p.shape, normals(p.name, n, 0.05)};
  }
  return files;
}

void HfFiles::write(const std::string& directory, int shards) const {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << config_->dump(2);
  if (shards == 1) return write_safetensors(directory + "/model.safetensors", tensors, metadata);
  std::vector<std::map<std::string, FileTensor>> parts(static_cast<size_t>(shards));
  Json map = Json::object();
  size_t next = 0;
  for (const auto& [name, t] : tensors) {
    const size_t shard = next++ % parts.size();
    parts[shard][name] = t;
    map[name] = concat("model-", shard, ".safetensors");
  }
  for (size_t i = 0; i < parts.size(); ++i)
    write_safetensors(concat(directory, "/model-", i, ".safetensors"), parts[i], metadata);
  std::ofstream(directory + "/model.safetensors.index.json")
      << Json{{"metadata", Json::object()}, {"weight_map", map}}.dump(2);
}

void HfFiles::drop_prefix(const std::string& prefix) {
  std::map<std::string, FileTensor> renamed;
  for (auto& [name, t] : tensors)
    renamed[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = std::move(t);
  tensors = std::move(renamed);
}

}  // namespace trireme::test
