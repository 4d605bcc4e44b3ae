// GGUF, the file format of llama.cpp: metadata and tensors in one file, versions 2 and 3,
// little-endian.
//
//   "GGUF", u32 version, u64 tensors, u64 pairs
//   pair     string key, u32 type, value
//            string: u64 length, bytes; array: u32 type, u64 count, values
//   tensor   string name, u32 dimensions, u64 sizes (the one that varies fastest first), u32 type,
//            u64 offset
//   padding to general.alignment (default: 32), then the tensors' blocks (gguf_blocks.h)
//
// Files are untrusted: counts, lengths, offsets and sizes are checked in 64 bits against the rest
// of the file before anything is allocated for them; keys and names must be unique; tensors must
// not overlap.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/io/atomic_file.h"
#include "engine/io/gguf_blocks.h"
#include "engine/io/mapped_file.h"
#include "engine/io/rounding_error.h"
#include "engine/io/tensor_source.h"

namespace trireme {

// Integers of all widths are int64 (a u64 beyond it is refused), floats are double; an array of
// booleans is one of int64. GgufWriter writes floats as f32, and integers as u32 or i32 if they
// fit, else as i64; integers in an array must fit i32 (CheckFailed).
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;
using GgufMetadata = std::map<std::string, GgufValue>;

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;  // from gguf_type()
  std::vector<int64_t> shape;      // row-major, the reverse of the file's order
  int64_t offset = 0;              // bytes from the start of the data
  int64_t bytes = 0;
};

struct GgufContents {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  int64_t data_start = 0;  // bytes before the data
};
// Parses and checks all but the tensors' data. file: all bytes of the file. Throws InputError;
// `path` is for messages only.
GgufContents parse_gguf(std::span<const std::byte> file, const std::string& path);

class GgufFile : public TensorSource {
 public:
  explicit GgufFile(const std::string& path);
  const GgufMetadata& metadata() const { return contents_.metadata; }
  std::vector<std::string> files() const override { return {path()}; }

  // Value of a key; nullopt if the file lacks it. InputError if it has another type.
  template <class T>
  std::optional<T> get(const std::string& key) const {
    const auto found = metadata().find(key);
    if (found == metadata().end()) return {};
    if (const T* value = std::get_if<T>(&found->second)) return *value;
    fail_input(path(), ": \"", key, "\" does not have the type that GGUF files give it");
  }

 protected:
  void read_elements(size_t number, int64_t begin, const Tensor& destination) const override;

 private:
  MappedFile file_;
  GgufContents contents_;
};

// Writes a file tensor by tensor, without keeping any in memory.
class GgufWriter {
 public:
  // The caller sets name, type and shape of `tensors`; offset and bytes are computed. CheckFailed
  // if a row is not whole blocks. resume_as: as in AtomicFile; the header is added to it.
  GgufWriter(const std::string& path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors,
             const std::string& resume_as = "");
  // Skips the whole rows of the next tensor that are kept (AtomicFile::kept()), and returns their
  // number of values. Call before the first write() of the tensor.
  int64_t skip_kept();
  const AtomicFile& file() const { return file_; }
  // Appends values of the current tensor: float32, finite, whole blocks, contiguous. Returns their
  // rounding error if they are quantized, else zeros.
  RoundingError write(const ConstTensor& values);
  void commit();                            // checks that every value of every tensor was written
  int64_t bytes() const { return total_; }  // of the whole file

 private:
  GgufWriter(const std::string& path, const std::string& header, std::vector<GgufTensor> tensors,
             int64_t total, const std::string& resume_as);
  void end_tensor();
  AtomicFile file_;
  std::vector<GgufTensor> tensors_;
  size_t next_ = 0;
  int64_t written_ = 0;  // bytes of tensor next_
  int64_t data_start_ = 0;
  int64_t total_ = 0;
};

}  // namespace trireme
