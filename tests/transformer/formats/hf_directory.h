// HuggingFace directories for tests: weights of a golden case, changed by the test, in any dtype
// and number of shards.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/reader.h"
#include "engine/core/dtype.h"

namespace trireme::test {

struct FileTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

struct HfFiles {
  // Config and weights of tests/golden/<name>, the weights in `dtype`.
  HfFiles(const std::string& golden, DType dtype);
  // Random weights of such a model; its tensors are its parameters.
  static HfFiles random(const Json& config, DType dtype);
  // Writes config.json and one or more safetensors files, with an index if more than one. Tensors
  // are distributed over the shards in turn.
  void write(const std::string& directory, int shards = 1) const;
  // Removes the prefix from the name of every tensor that starts with it.
  void drop_prefix(const std::string& prefix);

  std::map<std::string, FileTensor> tensors;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  // of each file
  Json& config() { return *config_; }

 private:
  HfFiles() = default;
  std::shared_ptr<Json> config_;
};

// Writes one file with these tensors.
void write_safetensors(const std::string& path, const std::map<std::string, FileTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The files of two directories hold the same tensors: names, dtypes, shapes and bytes.
void expect_same_bytes(const std::string& a, const std::string& b);

}  // namespace trireme::test
