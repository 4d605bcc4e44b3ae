#include "engine/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "engine/core/lfs_pointer.h"
#include "engine/io/mapping_guard.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

struct KnownDType {
  const char* name;
  int64_t size;
  std::optional<DType> dtype;
};
constexpr std::array<KnownDType, 15> kKnownDTypes{{{"F64", 8, DType::kF64},
                                                   {"F32", 4, DType::kF32},
                                                   {"BF16", 2, DType::kBF16},
                                                   {"F16", 2, DType::kF16},
                                                   {"I64", 8, DType::kI64},
                                                   {"I32", 4, DType::kI32},
                                                   {"U16", 2, DType::kU16},
                                                   {"U8", 1, DType::kU8},
                                                   {"U64", 8, {}},
                                                   {"U32", 4, {}},
                                                   {"I16", 2, {}},
                                                   {"I8", 1, {}},
                                                   {"BOOL", 1, {}},
                                                   {"F8_E4M3", 1, {}},
                                                   {"F8_E5M2", 1, {}}}};

const KnownDType* known_dtype(const std::string& name) {
  for (const KnownDType& known : kKnownDTypes) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

// Product of the dims times the element size; false on overflow.
bool tensor_bytes(const std::vector<int64_t>& shape, int64_t element, int64_t& bytes) {
  bytes = element;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return false;
  }
  return true;
}

SafetensorsEntry read_entry(const std::string& name, const nlohmann::json& json, int64_t data_bytes,
                            const std::string& path) {
  const std::string what = concat(path, ": tensor \"", name, "\"");
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    fail_input(what, ": expected exactly dtype, shape and data_offsets");
  }
  SafetensorsEntry entry;
  entry.name = name;
  if (!json["dtype"].is_string()) fail_input(what, ": dtype is not a string");
  entry.dtype_name = json["dtype"].get<std::string>();
  const KnownDType* known = known_dtype(entry.dtype_name);
  if (known == nullptr) fail_input(what, ": unknown dtype \"", entry.dtype_name, "\"");
  entry.dtype = known->dtype;
  if (!json["shape"].is_array()) fail_input(what, ": shape is not a list");
  for (const auto& dim : json["shape"]) entry.shape.push_back(strict_size(dim, what + ": shape"));
  const auto& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) {
    fail_input(what, ": data_offsets is not a pair of numbers");
  }
  entry.begin = strict_size(offsets[0], what + ": data_offsets");
  entry.end = strict_size(offsets[1], what + ": data_offsets");
  if (entry.begin > entry.end || entry.end > data_bytes) {
    fail_input(what, ": data_offsets [", entry.begin, ", ", entry.end, "] are outside the file's ",
               data_bytes, " bytes of data; the file is truncated or damaged: download it again");
  }
  int64_t bytes = 0;
  if (!tensor_bytes(entry.shape, known->size, bytes) || bytes != entry.bytes()) {
    fail_input(what, ": shape and dtype do not agree with data_offsets [", entry.begin, ", ",
               entry.end, "]");
  }
  return entry;
}

void read_metadata(const nlohmann::json& json, SafetensorsHeader& header, const std::string& path) {
  if (!json.is_object()) fail_input(path, ": __metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) fail_input(path, ": __metadata__ \"", key, "\" is not a string");
    header.metadata[key] = value.get<std::string>();
  }
}

// Sorts entries by position and checks that they cover the data without gaps or overlaps.
void check_cover(SafetensorsHeader& header, int64_t data_bytes, const std::string& path) {
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  int64_t covered = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin < covered) {
      fail_input(path, ": tensor \"", entry.name, "\" overlaps the one before it");
    }
    if (entry.begin > covered) {
      fail_input(path, ": ", entry.begin - covered, " bytes before tensor \"", entry.name,
                 "\" belong to no tensor");
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    fail_input(path, ": ", data_bytes - covered, " bytes at the end belong to no tensor");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, int64_t file_size,
                                           const std::string& path) {
  refuse_lfs_pointer(file, path);
  if (file_size < 8 || file.size() < 8) {
    fail_input(path, ": not a safetensors file: ", file_size, " bytes, at least 8 are needed");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(file[i]) << (8 * i);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    fail_input(path, ": not a safetensors file: a header of ", length,
               " bytes is claimed, at most ", kMaxSafetensorsHeader, " are allowed");
  }
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_size - 8 || length > file.size() - 8) {
    fail_input(path, ": truncated: the header needs ", header_bytes, " bytes, ", file_size - 8,
               " are there; download it again");
  }
  const std::string_view header_text(reinterpret_cast<const char*>(file.data()) + 8, length);
  const JsonLimits limits{.depth = 4, .keys_per_object = 1 << 22};
  const auto json = parse_strict_json<nlohmann::json>(header_text, path + ": header", limits);
  if (!json.is_object()) fail_input(path, ": the header is not a JSON object");

  SafetensorsHeader header;
  header.data_start = 8 + header_bytes;
  const int64_t data_bytes = file_size - header.data_start;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      read_metadata(value, header, path);
    } else {
      header.entries.push_back(read_entry(name, value, data_bytes, path));
    }
  }
  check_cover(header, data_bytes, path);
  return header;
}

SafetensorsReader::SafetensorsReader(const std::string& path)
    : file_(path), header_(parse_safetensors_header(file_.bytes(), file_.size(), path)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) by_name_[header_.entries[i].name] = i;
  check_mapping(file_.bytes());
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &header_.entries[it->second];
}

std::span<const std::byte> SafetensorsReader::bytes(const SafetensorsEntry& entry) const {
  check_mapping(file_.bytes());
  return file_.bytes().subspan(static_cast<size_t>(header_.data_start + entry.begin),
                               static_cast<size_t>(entry.bytes()));
}

ConstTensor SafetensorsReader::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    fail_input(path(), ": has no tensor \"", name, "\" among its ", entries().size());
  }
  if (!entry->dtype.has_value()) {
    fail_input(path(), ": tensor \"", name, "\" is ", entry->dtype_name,
               ", which is not supported");
  }
  if (entry->shape.size() > static_cast<size_t>(kMaxRank)) {
    fail_input(path(), ": tensor \"", name, "\" has ", entry->shape.size(), " dimensions, at most ",
               kMaxRank, " are supported");
  }
  const std::byte* data = bytes(*entry).data();
  const auto alignment = static_cast<uintptr_t>(dtype_size(*entry->dtype));
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    fail_input(path(), ": the data of tensor \"", name, "\" is not aligned to ", alignment,
               " bytes; save the file again with a current safetensors library");
  }
  return ConstTensor(data, *entry->dtype, Shape(std::span<const int64_t>(entry->shape)));
}

std::string safetensors_dtype_name(DType dtype) {
  for (const KnownDType& known : kKnownDTypes) {
    if (known.dtype == dtype) return known.name;
  }
  TRIREME_UNREACHABLE("no safetensors name for dtype ", dtype);
}

std::string safetensors_header(const std::vector<SafetensorsSpec>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::string dumped = json.dump();
  dumped.pop_back();  // entries are appended as text: insertion into an ordered object is linear
  int64_t at = 0;
  std::set<std::string_view> names{"__metadata__"};
  for (const SafetensorsSpec& spec : tensors) {
    TRIREME_CHECK(names.insert(spec.name).second, "the tensor name \"", spec.name,
                  "\" is reserved or used twice");
    int64_t bytes = 0;
    TRIREME_CHECK(tensor_bytes(spec.shape, dtype_size(spec.dtype), bytes), "the size of tensor ",
                  spec.name, " exceeds 63 bits");
    const int64_t end = checked_add(at, bytes);
    const nlohmann::ordered_json entry = {
        {"dtype",
         spec.dtype_name != nullptr ? spec.dtype_name : safetensors_dtype_name(spec.dtype)},
        {"shape", spec.shape},
        {"data_offsets", {at, end}}};
    if (dumped.size() > 1) dumped += ',';
    dumped += nlohmann::json(spec.name).dump() + ':' + entry.dump();
    at = end;
  }
  dumped += '}';
  dumped.resize((dumped.size() + 7) / 8 * 8, ' ');
  TRIREME_CHECK(dumped.size() <= static_cast<size_t>(kMaxSafetensorsHeader), "header of ",
                dumped.size(), " bytes is too large");
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(dumped.size() >> (8 * i) & 0xff);
  return header + dumped;
}

namespace {

int64_t total_bytes(const std::vector<SafetensorsSpec>& tensors) {
  int64_t total = 0;
  for (const SafetensorsSpec& spec : tensors) {
    int64_t bytes = 0;
    TRIREME_CHECK(tensor_bytes(spec.shape, dtype_size(spec.dtype), bytes), "the size of tensor ",
                  spec.name, " exceeds 63 bits");
    total = checked_add(total, bytes);
  }
  return total;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<SafetensorsSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     const std::string& resume_as)
    : SafetensorsWriter(path, safetensors_header(tensors, metadata), total_bytes(tensors),
                        resume_as) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::string& header,
                                     int64_t data_bytes, const std::string& resume_as)
    : file_(path, checked_add(static_cast<int64_t>(header.size()), data_bytes),
            resume_as.empty() ? "" : resume_as + header),
      data_start_(static_cast<int64_t>(header.size())),
      total_(data_start_ + data_bytes) {
  file_.write(header);
}

int64_t SafetensorsWriter::skip_kept(int64_t elements, DType dtype) {
  const int64_t size = dtype_size(dtype), left = std::max<int64_t>(0, file_.kept() - file_.size());
  const int64_t kept = std::min(elements, left / size);
  file_.skip(kept * size);
  return kept;
}

bool SafetensorsWriter::skip_kept_whole(int64_t bytes) {
  if (file_.kept() - file_.size() < bytes) return false;
  file_.skip(bytes);
  return true;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) { file_.write(bytes); }

void SafetensorsWriter::write(const ConstTensor& contiguous) {
  check_contiguous("SafetensorsWriter::write", "tensor", contiguous);
  write({static_cast<const std::byte*>(contiguous.raw()), static_cast<size_t>(contiguous.bytes())});
}

void SafetensorsWriter::commit() {
  TRIREME_CHECK(file_.size() == total_, file_.path(), ": ", file_.size(), " bytes written, ",
                total_, " declared");
  file_.commit();
}

}  // namespace trireme
