// Writer of gguf.h.
#include <algorithm>

#include "engine/core/cpu.h"
#include "engine/core/parallel_for.h"
#include "engine/io/gguf.h"

namespace trireme {
namespace {

constexpr int64_t kAlignment = 32;

class Bytes {
 public:
  template <class T>
  void number(T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void string(const std::string& s) {
    number(static_cast<uint64_t>(s.size()));
    out += s;
  }
  // Counts and ids are written as in most files: 32 bits if they fit.
  void integer(int64_t value, bool in_array) {
    const bool narrow_signed = in_array || value < 0;
    if (narrow_signed && value >= INT32_MIN && value <= INT32_MAX) {
      if (!in_array) number(uint32_t{5});
      number(static_cast<int32_t>(value));
    } else if (value >= 0 && value <= int64_t{UINT32_MAX} && !in_array) {
      number(uint32_t{4});
      number(static_cast<uint32_t>(value));
    } else {
      TRIREME_CHECK(!in_array, "GGUF array element ", value, " does not fit into int32");
      number(uint32_t{11});
      number(value);
    }
  }
  void operator()(int64_t v) { integer(v, false); }
  void operator()(double v) {
    number(uint32_t{6});
    number(static_cast<float>(v));
  }
  void operator()(bool v) {
    number(uint32_t{7});
    number(static_cast<uint8_t>(v));
  }
  void operator()(const std::string& v) {
    number(uint32_t{8});
    string(v);
  }
  void operator()(const std::vector<int64_t>& v) {
    array(5, v.size());
    for (const int64_t x : v) integer(x, true);
  }
  void operator()(const std::vector<double>& v) {
    array(6, v.size());
    for (const double x : v) number(static_cast<float>(x));
  }
  void operator()(const std::vector<std::string>& v) {
    array(8, v.size());
    for (const std::string& x : v) string(x);
  }

  std::string out;

 private:
  void array(uint32_t type, size_t count) {
    number(uint32_t{9});
    number(type);
    number(static_cast<uint64_t>(count));
  }
};

// Sets offsets and sizes; returns the bytes of the data, including padding.
int64_t place(std::vector<GgufTensor>& tensors) {
  int64_t at = 0;
  for (GgufTensor& t : tensors) {
    int64_t numbers = 1;
    for (const int64_t dim : t.shape) numbers = checked_mul(numbers, dim);
    TRIREME_CHECK(t.type != nullptr && t.shape.back() % t.type->block == 0, t.name,
                  " does not consist of whole blocks");
    t.offset = at;
    t.bytes = checked_mul(numbers / t.type->block, t.type->block_bytes);
    at = round_up(checked_add(at, t.bytes), kAlignment);
  }
  return at;
}

// general.architecture comes first, as expected by readers that look only at the start.
std::string header_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  Bytes bytes;
  bytes.out = "GGUF";
  bytes.number(uint32_t{3});
  bytes.number(static_cast<uint64_t>(tensors.size()));
  bytes.number(static_cast<uint64_t>(metadata.size()));
  const std::string first = "general.architecture";
  const auto pair = [&](const std::string& key, const GgufValue& value) {
    bytes.string(key);
    std::visit(bytes, value);
  };
  if (const auto found = metadata.find(first); found != metadata.end()) pair(first, found->second);
  for (const auto& [key, value] : metadata)
    if (key != first) pair(key, value);
  for (const GgufTensor& t : tensors) {
    bytes.string(t.name);
    bytes.number(static_cast<uint32_t>(t.shape.size()));
    for (size_t d = t.shape.size(); d-- > 0;) bytes.number(static_cast<uint64_t>(t.shape[d]));
    bytes.number(t.type->id);
    bytes.number(static_cast<uint64_t>(t.offset));
  }
  bytes.out.resize(static_cast<size_t>(round_up(std::ssize(bytes.out), kAlignment)), '\0');
  return bytes.out;
}

// Encodes numbers as blocks of `type`, chunks of them in parallel: the sums do not depend on the
// number of threads.
RoundingError encode(const GgufType& type, std::span<const float> numbers, std::byte* out) {
  constexpr int64_t kChunk = 64 * kMaxGgufBlock;
  const int64_t chunks = ceil_div(std::ssize(numbers), kChunk);
  std::vector<RoundingError> errors(static_cast<size_t>(chunks));
  parallel_for(available_cores(), chunks, 4, [&](int64_t begin, int64_t end) {
    std::vector<float> decoded(static_cast<size_t>(kChunk));
    for (int64_t c = begin; c < end; ++c) {
      const int64_t count = std::min(kChunk, std::ssize(numbers) - c * kChunk);
      const auto exact =
          numbers.subspan(static_cast<size_t>(c * kChunk), static_cast<size_t>(count));
      std::byte* const blocks = out + c * kChunk / type.block * type.block_bytes;
      for (int64_t b = 0; b < count / type.block; ++b) {
        type.encode(exact.data() + b * type.block, blocks + b * type.block_bytes);
        type.decode(blocks + b * type.block_bytes, decoded.data() + b * type.block);
      }
      errors[static_cast<size_t>(c)].add(exact, std::span(decoded).first(exact.size()));
    }
  });
  RoundingError all;
  for (const RoundingError& error : errors) all.add(error);
  return all;
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata,
                       std::vector<GgufTensor> tensors, const std::string& resume_as)
    : GgufWriter(
          path,
          [&] {
            place(tensors);
            return header_of(metadata, tensors);
          }(),
          tensors, place(tensors), resume_as) {}

GgufWriter::GgufWriter(const std::string& path, const std::string& header,
                       std::vector<GgufTensor> tensors, int64_t data, const std::string& resume_as)
    : file_(path, checked_add(std::ssize(header), data),
            resume_as.empty() ? "" : resume_as + header),
      tensors_(std::move(tensors)),
      data_start_(std::ssize(header)),
      total_(data_start_ + data) {
  place(tensors_);
  file_.write(header);
}

RoundingError GgufWriter::write(const ConstTensor& values) {
  TRIREME_CHECK(next_ < tensors_.size(), "values after those of the last tensor");
  const GgufTensor& t = tensors_[next_];
  check_dtype("GgufWriter::write", t.name.c_str(), values, DType::kF32);
  check_contiguous("GgufWriter::write", t.name.c_str(), values);
  const GgufType& type = *t.type;
  const int64_t count = values.numel();
  TRIREME_CHECK(count % type.block == 0, t.name, ": ", count, " values are not whole blocks");
  const int64_t bytes = count / type.block * type.block_bytes;
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  const std::span numbers(values.as<float>(), static_cast<size_t>(count));
  RoundingError error;
  if (type.dtype.has_value()) {
    convert_elements(Tensor(out.data(), *type.dtype, Shape{count}), numbers);
  } else {
    TRIREME_CHECK(type.encode != nullptr, type.name, " is not written");
    error = encode(type, numbers, out.data());
  }
  file_.write(out);
  written_ += bytes;
  TRIREME_CHECK(written_ <= t.bytes, t.name, ": more values than the tensor has");
  if (written_ == t.bytes) end_tensor();
  return error;
}

void GgufWriter::end_tensor() {
  const GgufTensor& t = tensors_[next_];
  const int64_t end = data_start_ + round_up(t.offset + t.bytes, kAlignment);
  file_.write(std::string(static_cast<size_t>(end - file_.size()), '\0'));
  ++next_;
  written_ = 0;
}

int64_t GgufWriter::skip_kept() {
  TRIREME_CHECK(next_ < tensors_.size() && written_ == 0, "skip_kept() was called within a tensor");
  const GgufTensor& t = tensors_[next_];
  const int64_t columns = t.shape.back(), row = columns / t.type->block * t.type->block_bytes;
  const int64_t rows = std::min(t.bytes, std::max<int64_t>(0, file_.kept() - file_.size())) / row;
  file_.skip(rows * row);
  written_ = rows * row;
  if (written_ == t.bytes) end_tensor();
  return rows * columns;
}

void GgufWriter::commit() {
  TRIREME_CHECK(next_ == tensors_.size() && file_.size() == total_, file_.path(), ": ",
                file_.size(), " bytes written, ", total_, " declared");
  file_.commit();
}

}  // namespace trireme
