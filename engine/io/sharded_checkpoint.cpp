// Reader of sharded_checkpoint.h; sharded_checkpoint_save.cpp is the writer.
#include "engine/io/sharded_checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/io/atomic_file.h"
#include "engine/io/file_error.h"
#include "engine/io/input_file.h"
#include "engine/io/strict_json.h"
#include "engine/io/tensor_source.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMaxManifest = int64_t{1} << 30;
constexpr size_t kVerifyBlock = 1 << 20;

// A step directory itself, or the one that `latest` in a root names.
std::string resolve(const std::string& path) {
  if (is_present(path + "/" + kManifestName) || !is_present(path + "/latest")) return path;
  std::string name = read_small_file(path + "/latest", 4096);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  int64_t step = 0;
  if (!parse_step_directory_name(name, step)) {
    fail_input(path, "/latest names \"", name.substr(0, 80), "\", which is not a checkpoint");
  }
  return path + "/" + name;
}

uint64_t checksum_of_range(int descriptor, int64_t offset, int64_t bytes, const std::string& path) {
  std::vector<std::byte> block(std::min<size_t>(kVerifyBlock, static_cast<size_t>(bytes)));
  ChecksumStream stream;
  while (bytes > 0) {
    const auto size = std::min<int64_t>(bytes, static_cast<int64_t>(block.size()));
    const std::span piece(block.data(), static_cast<size_t>(size));
    read_fully(descriptor, offset, piece, path);
    stream.update(piece);
    offset += size;
    bytes -= size;
  }
  return stream.value();
}

struct PlacedSlice {
  const CheckpointTensor* tensor;
  const CheckpointSlice* slice;
  std::string str() const {
    return concat(tensor->kind, " \"", tensor->name, "\" ", slice->part.box.str(), " elements ",
                  slice->part.begin, " to ", slice->part.end);
  }
};

std::vector<PlacedSlice> slices_of_shard(const CheckpointManifest& manifest, int64_t shard) {
  std::vector<PlacedSlice> slices;
  for (const CheckpointTensor& tensor : manifest.tensors) {
    for (const CheckpointSlice& slice : tensor.slices) {
      if (slice.shard == shard) slices.push_back({&tensor, &slice});
    }
  }
  return slices;
}

// Opens a shard and checks its size; if truncated, names the first tensor affected.
int open_shard(const CheckpointManifest& manifest, size_t index, const std::string& directory) {
  const CheckpointShard& shard = manifest.shards[index];
  const std::string path = directory + "/" + shard.file;
  const int descriptor = open_regular_file(path, "open shard");
  struct stat info {};
  if (::fstat(descriptor, &info) == 0 && info.st_size == shard.bytes) return descriptor;
  ::close(descriptor);
  std::string first;
  int64_t first_offset = INT64_MAX;
  for (const PlacedSlice& placed : slices_of_shard(manifest, static_cast<int64_t>(index))) {
    const int64_t end = placed.slice->offset + placed.slice->bytes;
    if (end > info.st_size && placed.slice->offset < first_offset) {
      first_offset = placed.slice->offset;
      first = ", first in " + placed.str();
    }
  }
  fail_input("damaged shard ", path, ": ", info.st_size,
             " bytes, expected from the manifest: ", shard.bytes, first,
             "; use another checkpoint");
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path) : directory_(resolve(path)) {
  if (!is_present(directory_) || !fs::is_directory(directory_)) {
    fail_input("no checkpoint at ", path, ": ", directory_, " is not a directory");
  }
  const std::string manifest_path = directory_ + "/" + kManifestName;
  if (!is_present(manifest_path)) {
    fail_input("no checkpoint at ", path, ": there is no ", kManifestName,
               " in it; give a step directory or the directory that holds `latest`");
  }
  manifest_ = manifest_from_text(read_small_file(manifest_path, kMaxManifest), manifest_path);
  try {
    for (size_t i = 0; i < manifest_.shards.size(); ++i) {
      descriptors_.push_back(open_shard(manifest_, i, directory_));
    }
  } catch (...) {
    for (const int descriptor : descriptors_) ::close(descriptor);
    throw;
  }
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    by_name_[{manifest_.tensors[i].kind, manifest_.tensors[i].name}] = i;
  }
}

CheckpointReader::CheckpointReader(CheckpointReader&& other, const std::string& variant)
    : CheckpointReader(std::move(other)) {
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    const std::string& kind = manifest_.tensors[i].kind;
    if (kind.ends_with(variant))
      by_name_[{kind.substr(0, kind.size() - variant.size()), manifest_.tensors[i].name}] = i;
  }
}

CheckpointReader::~CheckpointReader() {
  for (const int descriptor : descriptors_) ::close(descriptor);
}

CheckpointReader::CheckpointReader(CheckpointReader&& other) noexcept { *this = std::move(other); }

CheckpointReader& CheckpointReader::operator=(CheckpointReader&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(manifest_, other.manifest_);
  std::swap(descriptors_, other.descriptors_);
  std::swap(by_name_, other.by_name_);
  return *this;
}

nlohmann::ordered_json CheckpointReader::state() const {
  return parse_json_text<nlohmann::ordered_json>(manifest_.state);
}

const CheckpointTensor* CheckpointReader::find(std::string_view kind, std::string_view name) const {
  const auto it = by_name_.find({std::string(kind), std::string(name)});
  return it == by_name_.end() ? nullptr : &manifest_.tensors[it->second];
}

const CheckpointTensor& CheckpointReader::require(std::string_view kind, std::string_view name,
                                                  DType dtype,
                                                  const std::vector<int64_t>& shape) const {
  const CheckpointTensor* tensor = find(kind, name);
  if (tensor == nullptr) {
    fail_input("checkpoint ", directory_, " has no ", kind, " \"", name, "\" among its ",
               manifest_.tensors.size(), " tensors; it belongs to another config or is incomplete");
  }
  if (tensor->shape != shape) {
    fail_input("checkpoint ", directory_, ": ", kind, " \"", name, "\" has shape ",
               shape_text(tensor->shape), ", expected from the config: ", shape_text(shape));
  }
  if (tensor->dtype != dtype) {
    fail_input("checkpoint ", directory_, ": ", kind, " \"", name, "\" is ", tensor->dtype,
               ", expected from the config: ", dtype);
  }
  return *tensor;
}

void CheckpointReader::read(const CheckpointTensor& tensor, const TensorBox& box, int64_t begin,
                            const Tensor& destination) const {
  check_contiguous("CheckpointReader::read", tensor.name.c_str(), destination);
  check_dtype("CheckpointReader::read", tensor.name.c_str(), destination, tensor.dtype);
  const std::string problem = check_box(box, tensor.shape);
  TRIREME_CHECK(problem.empty(), tensor.name, ": ", problem);
  const int64_t count = destination.numel();
  TRIREME_CHECK(begin >= 0 && count <= box.numel() - begin, tensor.name, ": ", count,
                " elements from ", begin, " on are outside a box of ", box.numel());
  const TensorPart wanted{box, begin, begin + count};
  const int64_t size = dtype_size(tensor.dtype);
  auto* out = static_cast<std::byte*>(destination.raw());
  int64_t found = 0;
  for (const CheckpointSlice& slice : tensor.slices) {
    for_each_common_run(tensor.shape, slice.part, wanted, [&](const CommonRun& run) {
      read_fully(descriptors_[static_cast<size_t>(slice.shard)],
                 slice.offset + run.first_offset * size,
                 {out + run.second_offset * size, static_cast<size_t>(run.length * size)},
                 directory_ + "/" + manifest_.shards[static_cast<size_t>(slice.shard)].file);
      found += run.length;
    });
  }
  TRIREME_CHECK(found == count, tensor.name, ": ", found, " of ", count, " elements found");
}

void CheckpointReader::read_whole(const CheckpointTensor& tensor, const Tensor& destination) const {
  read(tensor, whole_box(tensor.shape), 0, destination);
}

std::vector<std::string> CheckpointReader::verify() const {
  std::vector<std::string> problems;
  for (size_t i = 0; i < manifest_.shards.size(); ++i) {
    const CheckpointShard& shard = manifest_.shards[i];
    const std::string path = directory_ + "/" + shard.file;
    try {
      if (checksum_of_range(descriptors_[i], 0, shard.bytes, path) == shard.checksum) continue;
      std::string where;
      for (const PlacedSlice& placed : slices_of_shard(manifest_, static_cast<int64_t>(i))) {
        const CheckpointSlice& slice = *placed.slice;
        const uint64_t now = checksum_of_range(descriptors_[i], slice.offset, slice.bytes, path);
        if (now != slice.checksum) where += (where.empty() ? "" : "; ") + placed.str();
      }
      if (where.empty()) where = "its header";
      problems.push_back(concat("damaged shard ", path, ": checksum differs in ", where));
    } catch (const FileError&) {
      throw;  // not known to be damaged: it may be readable later
    } catch (const InputError& error) {
      problems.push_back(concat("damaged shard ", path, ": ", error.what()));
    }
  }
  return problems;
}

namespace {

// Names of the step directories under `root`, newest first; none if it is absent or a file.
std::vector<std::string> step_directories(const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  if (!is_present(root) || fs::is_regular_file(root, error)) return names;
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    int64_t step = 0;
    std::string name = entry->path().filename().string();
    if (parse_step_directory_name(name, step)) names.push_back(std::move(name));
  }
  if (error) fail_file("list", root, error.value());
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

// Whether an open failed because the name is gone, the only failure that counts as damage. A
// permission, an I/O error or a link into a file system that is not mounted yet may pass, and the
// checkpoint may be complete.
bool is_gone(const FileError& error) {
  struct stat info {};
  return error.error_number() == ENOENT && ::lstat(error.path().c_str(), &info) != 0 &&
         errno == ENOENT;
}

// Damage or doubt; "" if none.
std::string damage_of(const std::string& directory, bool thorough,
                      const CheckpointSkipReason& doubt) {
  try {
    const CheckpointReader reader(directory);
    if (std::string why = doubt ? doubt(reader) : ""; !why.empty()) return why;
    const std::vector<std::string> problems =
        thorough ? reader.verify() : std::vector<std::string>{};
    return problems.empty() ? "" : problems.front();
  } catch (const FileError& error) {
    if (is_gone(error)) return error.what();
    throw FileError(concat(error.what(), " (checkpoint ", directory,
                           " may be complete, so no older one is used instead)"),
                    error.path(), error.error_number());
  } catch (const Error& damaged) {
    return damaged.what();
  }
}

}  // namespace

NewestCheckpoint find_newest_whole(const std::string& root, bool thorough,
                                   const CheckpointSkipReason& doubt) {
  NewestCheckpoint newest;
  for (const std::string& name : step_directories(root)) {
    const std::string directory = concat(root, "/", name);
    std::string damage = damage_of(directory, thorough, doubt);
    if (!damage.empty()) {
      newest.skipped.push_back(std::move(damage));
      continue;
    }
    newest.directory = directory;
    break;
  }
  return newest;
}

std::string step_directory_name(int64_t step) {
  TRIREME_CHECK(step >= 0 && step < 100'000'000, "step ", step);
  std::string digits = std::to_string(step);
  return "step-" + std::string(8 - digits.size(), '0') + digits;
}

bool parse_step_directory_name(const std::string& name, int64_t& step) {
  if (name.size() != 13 || !name.starts_with("step-")) return false;
  int64_t parsed = 0;
  for (const char c : name.substr(5)) {
    if (c < '0' || c > '9') return false;
    parsed = parsed * 10 + (c - '0');
  }
  step = parsed;
  return true;
}

std::string shard_file_name(size_t index, size_t count) {
  const auto five = [](size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return concat("shard-", five(index), "-of-", five(count), ".safetensors");
}

}  // namespace trireme
