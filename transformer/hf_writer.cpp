#include "transformer/hf_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_directory.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr const char* kMarker = "export.json";

DType dtype_in_file(const FileTensor& tensor, const HfWriteOptions& options) {
  return tensor.router ? DType::kF32 : options.dtype;
}

int64_t bytes_of(const FileTensor& tensor, const HfWriteOptions& options) {
  return tensor.numel() * dtype_size(dtype_in_file(tensor, options));
}

// Tensors one behind the other, as many in a shard as fit; never less than one.
std::vector<std::vector<const FileTensor*>> divide(const std::vector<FileTensor>& tensors,
                                                   const HfWriteOptions& options) {
  std::vector<std::vector<const FileTensor*>> shards(1);
  int64_t bytes = 0;
  for (const FileTensor& tensor : tensors) {
    const int64_t more = bytes_of(tensor, options);
    if (!shards.back().empty() && bytes + more > options.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(&tensor);
    bytes += more;
  }
  // Wide elements first keeps every tensor aligned to its element.
  for (auto& shard : shards)
    std::ranges::stable_sort(shard, std::greater<>(), [&](const FileTensor* t) {
      return dtype_size(dtype_in_file(*t, options));
    });
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return kSafetensorsFile;
  const auto five = [](size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return concat("model-", five(index + 1), "-of-", five(count), ".safetensors");
}

std::vector<SafetensorsSpec> specs_of(const std::vector<const FileTensor*>& shard,
                                      const HfWriteOptions& options) {
  std::vector<SafetensorsSpec> specs;
  specs.reserve(shard.size());
  for (const FileTensor* t : shard)
    specs.push_back({t->name, dtype_in_file(*t, options), t->shape});
  return specs;
}

// Files appear whole, so that one of the right size that begins right is the one wanted.
bool is_whole(const std::string& path, const std::string& header, int64_t bytes) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const MappedFile file(path);
  if (file.size() != std::ssize(header) + bytes) return false;
  return std::equal(header.begin(), header.end(),
                    reinterpret_cast<const char*>(file.bytes().data()));
}

// Begins an export, or finds that one began here.
void mark(const std::string& directory, const std::string& marker) {
  const std::string path = directory + "/" + kMarker;
  std::error_code error;
  if (fs::exists(path, error)) {
    if (read_small_file(path) == marker) return;
    fail_input(directory, " holds an unfinished export of something else; remove it or give ",
               "another directory");
  }
  if (fs::exists(directory, error) && !fs::is_empty(directory, error))
    fail_input(directory, " is not empty; remove it or give another directory");
  make_directories(directory);
  write_file_atomically(path, marker);
}

Json config_to_write(const ModelSource& source, const HfWriteOptions& options) {
  Json json = model_config_to_json(source.config());
  json["torch_dtype"] = dtype_name(options.dtype);
  return json;
}

void write_configs(const ModelSource& source, const std::string& directory,
                   const HfWriteOptions& options) {
  const auto write = [&](const char* name, const Json& json) {
    write_file_atomically(directory + "/" + name, json.dump(2) + "\n");
  };
  const ModelConfig& config = source.config();
  const auto id = [](int64_t token) { return token < 0 ? Json() : Json(token); };
  if (!fs::exists(directory + "/generation_config.json"))
    write("generation_config.json", {{"_from_model_config", true},
                                     {"bos_token_id", id(config.bos_token_id)},
                                     {"eos_token_id", id(config.eos_token_id)}});
  write("config.json", config_to_write(source, options));
}

}  // namespace

std::vector<std::string> copy_tokenizer(const std::string& tokenizer,
                                        const std::string& directory) {
  std::vector<std::string> copied;
  if (tokenizer.empty() || tokenizer == "byte") return copied;
  const fs::path folder = fs::path(tokenizer).parent_path();
  const auto copy = [&](const fs::path& from, const std::string& name) {
    std::error_code error;
    if (!fs::is_regular_file(from, error)) return;
    write_file_atomically(directory + "/" + name, read_small_file(from.string(), 256 << 20));
    copied.push_back(name);
  };
  const bool json = tokenizer.ends_with(".json");
  copy(tokenizer, json ? "tokenizer.json" : "tokenizer.model");
  if (json) copy(folder / "tokenizer.model", "tokenizer.model");
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "chat_template.jinja", "generation_config.json"})
    copy(folder / name, name);
  return copied;
}

HfWritten write_hf_directory(const ModelSource& source, const std::string& directory,
                             const HfWriteOptions& options) {
  const ModelConfig& config = source.config();
  source.check(config);
  const std::vector<FileTensor> tensors = file_tensors(config, [&](const std::string& parameter) {
    return ParameterPlace{hf_source(config, parameter)};
  });
  const auto shards = divide(tensors, options);
  const Json marker = {{"source", fs::absolute(source.path()).string()},
                       {"state", fingerprint(source)},
                       {"dtype", dtype_name(options.dtype)},
                       {"max_shard_bytes", options.max_shard_bytes}};
  mark(directory, marker.dump(2) + "\n");

  HfWritten written;
  int64_t total = 0;
  for (const FileTensor& tensor : tensors) total += bytes_of(tensor, options);
  std::map<std::string, std::string> weight_map;
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name = shard_name(s, shards.size()), path = concat(directory, "/", name);
    const std::vector<SafetensorsSpec> specs = specs_of(shards[s], options);
    int64_t bytes = 0;
    for (const FileTensor* t : shards[s]) {
      bytes += bytes_of(*t, options);
      weight_map[t->name] = name;
    }
    ++written.files;
    if (is_whole(path, safetensors_header(specs, {{"format", "pt"}}), bytes)) {
      ++written.kept;
      written.bytes += bytes;
      continue;
    }
    SafetensorsWriter writer(path, specs, {{"format", "pt"}});
    for (const FileTensor* t : shards[s])
      for_each_piece(source, config, *t, dtype_in_file(*t, options), [&](const ConstTensor& piece) {
        writer.write(piece);
        written.bytes += piece.bytes();
        if (options.progress) options.progress(written.bytes, total);
      });
    writer.commit();
  }
  if (shards.size() > 1)
    write_file_atomically(
        directory + "/" + kSafetensorsIndex,
        Json{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}.dump(2) + "\n");
  written.tokenizer_files = copy_tokenizer(source.tokenizer(), directory);
  write_configs(source, directory, options);
  remove_tree(directory + "/" + kMarker);
  return written;
}

}  // namespace trireme
