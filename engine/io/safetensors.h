// The safetensors file format (HuggingFace): 8 bytes little-endian header length, a JSON header
// padded with spaces to a multiple of 8, then the tensors' bytes, row-major, little-endian.
//
//   {"__metadata__": {"key": "text", ...},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// Offsets count from the end of the header; tensors must cover the data without gaps or overlaps.
// Files are untrusted: any inconsistent header is an InputError naming file and tensor, before
// anything is allocated for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/io/atomic_file.h"
#include "engine/io/mapped_file.h"

namespace trireme {

// Larger headers are refused, as the reference implementation does.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as in the file: "F32", "BF16", "BOOL", ...
  std::optional<DType> dtype;  // absent for types that DType lacks
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes from the end of the header
  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of their data
  std::map<std::string, std::string> metadata;
  int64_t data_start = 0;  // bytes before the data: 8 + header length
};

// file: the first bytes of the file, at least up to the end of the header unless it is truncated.
// file_size: of the whole file. path: for messages only.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, int64_t file_size,
                                           const std::string& path);

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr when absent
  // Bytes of the mapped file, valid for the reader's lifetime. InputError if the file has been
  // truncated since it was opened.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  // View of the mapped file, valid for the reader's lifetime. InputError if the name is absent, the
  // dtype is not one of DType, there are more than kMaxRank dimensions, or the data is not aligned.
  ConstTensor tensor(std::string_view name) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // Name in the file, for a type of the same size that DType lacks ("F8_E4M3" as kU8); null: that
  // of dtype.
  const char* dtype_name = nullptr;
};

std::string safetensors_dtype_name(DType dtype);  // "F32"
// Header: 8 bytes of length and the padded JSON, for tensors whose data follow in this order.
// CheckFailed for a name that appears twice.
std::string safetensors_header(const std::vector<SafetensorsSpec>& tensors,
                               const std::map<std::string, std::string>& metadata);

// Writes a file tensor by tensor, without keeping any in memory.
class SafetensorsWriter {
 public:
  // resume_as: as in AtomicFile; the header is added to it.
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {},
                    const std::string& resume_as = "");
  // Skips those of the next `elements` elements that are entirely kept (AtomicFile::kept()), and
  // returns their number. Call before writing any of them.
  int64_t skip_kept(int64_t elements, DType dtype);
  // Skips the next `bytes` bytes if all are kept; returns whether it did.
  bool skip_kept_whole(int64_t bytes);
  // Appends bytes of the data: tensors in the order of `tensors`, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  void write(const ConstTensor& contiguous);
  void commit();  // checks that every byte of every tensor was written
  int64_t data_start() const { return data_start_; }
  const AtomicFile& file() const { return file_; }

 private:
  SafetensorsWriter(const std::string& path, const std::string& header, int64_t data_bytes,
                    const std::string& resume_as);
  AtomicFile file_;
  int64_t data_start_ = 0;
  int64_t total_ = 0;
};

}  // namespace trireme
