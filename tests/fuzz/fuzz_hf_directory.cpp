// A whole HuggingFace directory of any bytes, quantised ones among them: parts separated by lines of "%%" are
// config.json, the headers of the shards in front of zeros, and the index where it is not one shard. Opening it
// throws InputError or yields a model whose every tensor can be read, under names that have a place.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/safetensors_directory.h"
#include "engine/io/strict_json.h"
#include "engine/observe/log.h"
#include "tests/support/scratch_directory.h"
#include "transformer/families/family.h"
#include "transformer/hf_model.h"

namespace {

namespace fs = std::filesystem;
using trireme::SourceTensor;
constexpr int64_t kMostData = 1 << 20;
constexpr int64_t kMostRead = 1 << 16;

std::vector<std::string> parts_of(std::string input) {
  std::vector<std::string> parts;
  for (size_t end = input.find("\n%%\n"); end != std::string::npos; end = input.find("\n%%\n")) {
    parts.push_back(input.substr(0, end));
    input.erase(0, end + 4);
  }
  parts.push_back(input);
  return parts;
}

// As many bytes of data as the header speaks of.
int64_t data_bytes(const std::string& header) {
  int64_t end = 0;
  const auto json = trireme::parse_json_text<nlohmann::json>(header);
  if (!json.is_object()) return 0;
  for (const auto& [name, tensor] : json.items()) {
    if (!tensor.is_object() || !tensor.contains("data_offsets")) continue;
    const auto& offsets = tensor["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[1].is_number_unsigned()) continue;
    if (offsets[1] <= kMostData) end = std::max(end, offsets[1].get<int64_t>());
  }
  return end;
}

void write_shard(const std::string& path, const std::string& header) {
  std::string length;
  for (size_t i = 0; i < 8; ++i)
    length.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  std::ofstream(path, std::ios::binary) << length << header;
  fs::resize_file(path, 8 + header.size() + static_cast<uintmax_t>(data_bytes(header)));
}

void write_directory(const std::string& dir, const std::vector<std::string>& parts) {
  for (const auto& entry : fs::directory_iterator(dir)) fs::remove(entry.path());
  std::ofstream(dir + "/config.json", std::ios::binary) << parts[0];
  if (parts.size() == 2) return write_shard(dir + "/model.safetensors", parts[1]);
  for (size_t i = 1; i + 1 < parts.size() && i < 4; ++i)
    write_shard(trireme::concat(dir, "/", i, ".safetensors"), parts[i]);
  std::ofstream(dir + "/" + trireme::kSafetensorsIndex, std::ios::binary) << parts.back();
}

void read_every_tensor(const trireme::TensorSource& source) {
  for (const SourceTensor& tensor : source.tensors()) {
    if (!tensor.dtype.has_value() || !trireme::is_float(*tensor.dtype)) continue;
    const int64_t n = tensor.numel();
    TRIREME_CHECK(n >= 0 && n <= 8 * 4 * kMostData, tensor.name, ": ", n, " elements");
    std::vector<float> values(static_cast<size_t>(std::min(n, kMostRead)));
    const trireme::Tensor out(values.data(), trireme::DType::kF32, {std::ssize(values)});
    source.read(tensor, 0, out);
    source.read(tensor, n - std::ssize(values), out);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trireme::test::ScratchDirectory dir;
  trireme::set_log_level(trireme::LogLevel::kError);  // unknown keys are noted
  const auto parts = parts_of(std::string(reinterpret_cast<const char*>(data), size));
  if (parts.size() < 2) return 0;
  write_directory(dir.path(), parts);
  try {
    const trireme::HfModel model(dir.path());
    read_every_tensor(model.tensors());
    const auto names = trireme::parameter_names(model.config());
    TRIREME_CHECK(!model.place(model.config(), names.token_embedding).tensor.empty(), "no place");
    TRIREME_CHECK(!model.settings().empty(), "a model without settings");
  } catch (const trireme::InputError&) {  // refused: good
  }
  return 0;
}
