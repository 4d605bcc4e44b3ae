#include "engine/io/safetensors_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <vector>

#include "engine/io/input_file.h"
#include "engine/io/mapping_guard.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr size_t kMaxListed = 12;
// From this size on bytes are read instead of mapped: mapping a page costs more than copying its
// bytes.
constexpr size_t kReadBytes = 4096;
constexpr size_t kConvertBytes = size_t{1} << 20;  // read at a time for conversion

// "a, b, c (and 7 more)"
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i)
    out += concat(i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMaxListed) out += concat(" (and ", names.size() - kMaxListed, " more)");
  return out;
}

// tensor -> file, each a plain name.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const JsonLimits limits{.depth = 8, .keys_per_object = 1 << 22};
  const auto json =
      parse_strict_json<nlohmann::json>(read_small_file(path, kMaxIndexBytes), path, limits);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    fail_input(path, ": has no object \"weight_map\"");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string())
      fail_input(path, ": the file of tensor \"", tensor, "\" is not a string");
    const std::string name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      fail_input(path, ": tensor \"", tensor, "\" is in \"", name.substr(0, 80),
                 "\", which is not a plain file name");
    files[tensor] = name;
  }
  if (files.empty()) fail_input(path, ": names no tensor");
  return files;
}

[[noreturn]] void fail_without_weights(const std::string& path) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("pytorch_model") || name.ends_with(".pth") || name.ends_with(".pt"))
      fail_input(path, ": its weights are in ", name,
                 ", a file of Python objects that could run any code; save the model with ",
                 "save_pretrained(DIR, safe_serialization=True) and give DIR");
  }
  fail_input(path, ": holds neither ", kSafetensorsFile, " nor ", kSafetensorsIndex);
}

}  // namespace

bool holds_safetensors(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return fs::exists(fs::path(path) / kSafetensorsFile, ignored) ||
           fs::exists(fs::path(path) / kSafetensorsIndex, ignored);
  return path.ends_with(".safetensors") && is_input_file(path);
}

SafetensorsDirectory::SafetensorsDirectory(const std::string& path) : TensorSource(path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) fail_input(path, ": no such file or directory");
  const fs::path folder = path;
  if (!fs::is_directory(path, ignored))
    add_file(path);
  else if (fs::exists(folder / kSafetensorsFile, ignored))
    add_file((folder / kSafetensorsFile).string());
  else if (fs::exists(folder / kSafetensorsIndex, ignored))
    open_indexed((folder / kSafetensorsIndex).string());
  else
    fail_without_weights(path);
}

SafetensorsDirectory::Descriptors::~Descriptors() {
  for (const int descriptor : all)
    if (descriptor >= 0) ::close(descriptor);
}

void SafetensorsDirectory::add_file(const std::string& file) {
  readers_.push_back(std::make_unique<SafetensorsReader>(file));
  descriptors_.all.push_back(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptors_.all.back() < 0) fail_file("open", file, errno);
  const std::vector<SafetensorsEntry>& entries = readers_.back()->entries();
  // Tensors cover the data to the end of the file.
  const int64_t data_start =
      static_cast<int64_t>(fs::file_size(file)) - (entries.empty() ? 0 : entries.back().end);
  for (const SafetensorsEntry& entry : entries) {
    if (find(entry.name) != nullptr)
      fail_input(path(), ": tensor \"", entry.name, "\" is in two files");
    add({entry.name, entry.dtype_name, entry.dtype, entry.shape, entry.bytes()});
    locations_.push_back(
        {readers_.back().get(), &entry, descriptors_.all.back(), data_start + entry.begin});
  }
}

void SafetensorsDirectory::open_indexed(const std::string& index) {
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.insert(file);
  std::vector<std::string> absent;
  std::string damaged;
  std::error_code ignored;
  for (const std::string& file : files) {
    const fs::path place = fs::path(path()) / file;
    if (!fs::exists(place, ignored)) {
      absent.push_back(file);
      continue;
    }
    try {
      add_file(place.string());
    } catch (const InputError& error) {
      damaged += concat("\n  ", error.what());
    }
  }
  if (!absent.empty())
    damaged = concat("\n  ", absent.size(), " of ", files.size(), " shards that ",
                     kSafetensorsIndex, " names are missing: ", listed(absent), damaged);
  if (!damaged.empty())
    fail_input(path(), ": its weights are incomplete; download these files again:", damaged);
  std::vector<std::string> missing, left_over;
  for (const auto& [tensor, file] : weight_map) {
    const SourceTensor* found = find(tensor);
    const size_t number = found == nullptr ? 0 : static_cast<size_t>(found - tensors().data());
    if (found == nullptr || fs::path(locations_[number].reader->path()).filename() != file)
      missing.push_back(concat(tensor, " (in ", file, ")"));
  }
  for (const SourceTensor& tensor : tensors())
    if (!weight_map.contains(tensor.name)) left_over.push_back(tensor.name);
  if (missing.empty() && left_over.empty()) return;
  fail_input(index, " does not agree with the shards:",
             missing.empty() ? "" : concat(" not in the shard that it names: ", listed(missing)),
             left_over.empty() ? ""
                               : concat(missing.empty() ? "" : ";",
                                        " missing from the index: ", listed(left_over)),
             "; files of two downloads may be mixed");
}

std::span<const std::byte> SafetensorsDirectory::bytes(const SourceTensor& tensor) const {
  const TensorLocation& location = locations_[static_cast<size_t>(&tensor - tensors().data())];
  return location.reader->bytes(*location.entry);
}

std::vector<std::string> SafetensorsDirectory::files() const {
  std::vector<std::string> out;
  out.reserve(readers_.size());
  for (const auto& reader : readers_) out.push_back(reader->path());
  return out;
}

void SafetensorsDirectory::read_elements(size_t number, int64_t begin,
                                         const Tensor& destination) const {
  const SourceTensor& tensor = tensors()[number];
  const DType dtype = tensor.dtype.value_or(destination.dtype());
  const int64_t size = dtype_size(dtype), bytes_wanted = destination.numel() * size;
  const TensorLocation& location = locations_[number];
  const std::span<const std::byte> all = bytes(tensor);
  if (std::cmp_less(bytes_wanted, kReadBytes)) {
    convert_elements(
        destination, dtype,
        all.subspan(static_cast<size_t>(begin * size), static_cast<size_t>(bytes_wanted)));
    check_mapping(all);
    return;
  }
  const std::string& file = location.reader->path();
  const int64_t start = location.offset + begin * size;
  if (dtype == destination.dtype()) {
    read_fully(location.descriptor, start,
               {static_cast<std::byte*>(destination.raw()), static_cast<size_t>(bytes_wanted)},
               file);
    return;
  }
  std::vector<std::byte> piece(std::min(kConvertBytes, static_cast<size_t>(bytes_wanted)));
  const Tensor out = destination.reshape({destination.numel()});
  for (int64_t done = 0; done < bytes_wanted; done += std::ssize(piece)) {
    const int64_t n = std::min(std::ssize(piece), bytes_wanted - done);
    const std::span part = std::span(piece).first(static_cast<size_t>(n));
    read_fully(location.descriptor, start + done, part, file);
    convert_elements(out.slice(0, done / size, (done + n) / size), dtype, part);
  }
}

}  // namespace trireme
