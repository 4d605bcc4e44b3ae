// Fuzzed safetensors files: a header of arbitrary bytes followed by zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"
#include "engine/io/tensor_source.h"

namespace trireme::test {

inline constexpr int64_t kMaxShardData = 1 << 20;

// Parts of an input, separated by lines of "%%".
inline std::vector<std::string> parts_of(std::string input) {
  std::vector<std::string> parts;
  for (size_t end = input.find("\n%%\n"); end != std::string::npos; end = input.find("\n%%\n")) {
    parts.push_back(input.substr(0, end));
    input.erase(0, end + 4);
  }
  parts.push_back(input);
  return parts;
}

// Number of data bytes that the header declares.
inline int64_t shard_data_bytes(const std::string& header) {
  int64_t end = 0;
  const auto json = parse_json_text<nlohmann::json>(header);
  if (!json.is_object()) return 0;
  for (const auto& [name, tensor] : json.items()) {
    if (!tensor.is_object() || !tensor.contains("data_offsets")) continue;
    const auto& offsets = tensor["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[1].is_number_unsigned()) continue;
    if (offsets[1] <= kMaxShardData) end = std::max(end, offsets[1].get<int64_t>());
  }
  return end;
}

inline void write_shard(const std::string& path, const std::string& header) {
  std::string length;
  for (size_t i = 0; i < 8; ++i)
    length.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  std::ofstream(path, std::ios::binary) << length << header;
  std::filesystem::resize_file(
      path, 8 + header.size() + static_cast<uintmax_t>(shard_data_bytes(header)));
}

// Reads the first and the last elements of every tensor of numbers.
inline void read_every_tensor(const TensorSource& source) {
  constexpr int64_t kMaxRead = 1 << 16;
  for (const SourceTensor& tensor : source.tensors()) {
    if (!tensor.dtype.has_value() || !is_float(*tensor.dtype)) continue;
    const int64_t n = tensor.numel();
    TRIREME_CHECK(n >= 0 && n <= 8 * 4 * kMaxShardData, tensor.name, ": ", n, " elements");
    std::vector<float> values(static_cast<size_t>(std::min(n, kMaxRead)));
    const Tensor out(values.data(), DType::kF32, {std::ssize(values)});
    source.read(tensor, 0, out);
    source.read(tensor, n - std::ssize(values), out);
  }
}

}  // namespace trireme::test
