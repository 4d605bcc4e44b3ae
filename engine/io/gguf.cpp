// Reader of gguf.h; gguf_writer.cpp is the writer.
#include "engine/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "engine/core/lfs_pointer.h"
#include "engine/io/mapping_guard.h"

namespace trireme {
namespace {

constexpr uint64_t kMaxPairs = 1 << 20, kMaxTensors = 1 << 20;
constexpr uint64_t kMaxString = uint64_t{64} << 20;  // a chat template is one string
constexpr uint64_t kMaxArray = uint64_t{1} << 26;
constexpr uint64_t kMaxName = 1024;
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr int64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDimensions = 4;

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kDouble
};

class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T), "a number").data(), sizeof(T));
    return value;
  }
  std::string string(uint64_t most, const char* what) {
    const auto length = number<uint64_t>();
    if (length > most) fail_input(path_, ": ", what, " of ", length, " bytes, at most ", most);
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> take(uint64_t bytes, const char* what) {
    if (bytes > file_.size() - at_)
      fail_input(path_, ": truncated: ", what, " needs ", bytes, " bytes at ", at_, ", ",
                 file_.size() - at_, " are left");
    const auto out = file_.subspan(at_, bytes);
    at_ += bytes;
    return out;
  }
  std::span<const std::byte> rest() const { return file_.subspan(at_); }
  int64_t at() const { return static_cast<int64_t>(at_); }
  uint64_t left() const { return file_.size() - at_; }

 private:
  std::span<const std::byte> file_;
  const std::string& path_;
  size_t at_ = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& path)
      : in_(file, path), size_(std::ssize(file)), path_(path) {}

  GgufContents parse() {
    read_magic();
    const auto tensors = in_.number<uint64_t>(), pairs = in_.number<uint64_t>();
    if (tensors > kMaxTensors || pairs > kMaxPairs)
      fail_input(path_, ": claims ", tensors, " tensors and ", pairs, " pairs, at most ",
                 kMaxTensors, " each are accepted");
    for (uint64_t i = 0; i < pairs; ++i) read_pair();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    place_data();
    return std::move(contents_);
  }

 private:
  void read_magic() {
    refuse_lfs_pointer(in_.rest(), path_);
    const auto magic = in_.take(4, "the magic");
    if (std::memcmp(magic.data(), "GGUF", 4) != 0) fail_input(path_, ": is not a GGUF file");
    const auto version = in_.number<uint32_t>();
    if (version != 2 && version != 3)
      fail_input(path_, ": GGUF version ", version,
                 version == 0x03000000 ? " in big-endian order" : "",
                 " is not supported; supported: 2 and 3, little-endian");
  }

  int64_t integer(uint32_t type, const std::string& key) {
    switch (type) {
      case kU8: return in_.number<uint8_t>();
      case kI8: return in_.number<int8_t>();
      case kU16: return in_.number<uint16_t>();
      case kI16: return in_.number<int16_t>();
      case kU32: return in_.number<uint32_t>();
      case kI32: return in_.number<int32_t>();
      case kI64: return in_.number<int64_t>();
      default: break;
    }
    const auto value = in_.number<uint64_t>();
    if (value > static_cast<uint64_t>(INT64_MAX))
      fail_input(path_, ": \"", key, "\" is ", value, ", which exceeds a signed 64-bit integer");
    return static_cast<int64_t>(value);
  }
  bool boolean(const std::string& key) {
    const auto value = in_.number<uint8_t>();
    if (value > 1) fail_input(path_, ": \"", key, "\": expected a boolean of 0 or 1, got ", value);
    return value == 1;
  }
  static bool is_integer(uint32_t type) { return type <= kI32 || type == kU64 || type == kI64; }

  GgufValue value(uint32_t type, const std::string& key) {
    if (is_integer(type)) return integer(type, key);
    switch (type) {
      case kFloat: return static_cast<double>(in_.number<float>());
      case kDouble: return in_.number<double>();
      case kBool: return boolean(key);
      case kString: return in_.string(kMaxString, "a string");
      case kArray: return array(key);
      default: fail_input(path_, ": \"", key, "\" has the unknown type ", type);
    }
  }

  GgufValue array(const std::string& key) {
    const auto type = in_.number<uint32_t>();
    const auto count = in_.number<uint64_t>();
    // Every element takes at least one byte, a string at least its length field.
    if (count > kMaxArray || count > in_.left() / (type == kString ? 8 : 1))
      fail_input(path_, ": \"", key, "\" claims ", count, " elements, ", in_.left(),
                 " bytes are left");
    const auto fill = [&]<class T>(std::vector<T> out, auto&& read) {
      for (uint64_t i = 0; i < count; ++i) out.push_back(read());
      return out;
    };
    if (is_integer(type)) return fill(std::vector<int64_t>(), [&] { return integer(type, key); });
    switch (type) {
      case kBool: return fill(std::vector<int64_t>(), [&] { return int64_t{boolean(key)}; });
      case kFloat:
        return fill(std::vector<double>(),
                    [&] { return static_cast<double>(in_.number<float>()); });
      case kDouble: return fill(std::vector<double>(), [&] { return in_.number<double>(); });
      case kString:
        return fill(std::vector<std::string>(), [&] { return in_.string(kMaxString, "a string"); });
      default: fail_input(path_, ": \"", key, "\" is an array of the unsupported type ", type);
    }
  }

  void read_pair() {
    const std::string key = in_.string(kMaxName, "a key");
    const auto type = in_.number<uint32_t>();
    if (!contents_.metadata.emplace(key, value(type, key)).second)
      fail_input(path_, ": the key \"", key, "\" appears twice");
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = in_.string(kMaxName, "a tensor's name");
    const std::string what = concat(path_, ": tensor \"", tensor.name, "\"");
    if (!names_.insert(tensor.name).second) fail_input(what, " appears twice");
    const auto dimensions = in_.number<uint32_t>();
    if (dimensions < 1 || dimensions > kMaxDimensions)
      fail_input(what, " has ", dimensions, " dimensions, 1 to ", kMaxDimensions, " are accepted");
    int64_t numbers = 1;
    for (uint32_t d = 0; d < dimensions; ++d) {
      const auto size = in_.number<uint64_t>();
      if (size < 1 || size > static_cast<uint64_t>(INT64_MAX) ||
          __builtin_mul_overflow(numbers, static_cast<int64_t>(size), &numbers))
        fail_input(what, " has the invalid dimension ", size);
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const auto type = in_.number<uint32_t>();
    tensor.type = gguf_type(type);
    if (tensor.type == nullptr) fail_input(what, " is of the unknown type ", type);
    if (tensor.shape.back() % tensor.type->block != 0)
      fail_input(what, " has rows of ", tensor.shape.back(), " numbers; a block of ",
                 tensor.type->name, " has ", tensor.type->block, " numbers");
    if (__builtin_mul_overflow(numbers / tensor.type->block, tensor.type->block_bytes,
                               &tensor.bytes))
      fail_input(what, " has more bytes than 64 bits can count");
    const auto offset = in_.number<uint64_t>();
    if (offset > static_cast<uint64_t>(INT64_MAX))
      fail_input(what, " begins at the invalid offset ", offset);
    tensor.offset = static_cast<int64_t>(offset);
    contents_.tensors.push_back(std::move(tensor));
  }

  int64_t alignment() const {
    const auto found = contents_.metadata.find("general.alignment");
    if (found == contents_.metadata.end()) return kDefaultAlignment;
    const int64_t* value = std::get_if<int64_t>(&found->second);
    if (value == nullptr || *value < 8 || *value > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*value)))
      fail_input(path_, ": general.alignment is not a power of two from 8 to ", kMaxAlignment);
    return *value;
  }

  void place_data() {
    const int64_t align = alignment();
    contents_.data_start = std::min(size_, round_up(in_.at(), align));
    const int64_t data = size_ - contents_.data_start;
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& t : contents_.tensors) {
      const std::string what = concat(path_, ": tensor \"", t.name, "\"");
      if (t.offset % align != 0)
        fail_input(what, " begins at ", t.offset, ", expected a multiple of ", align, " bytes");
      if (t.offset > data || t.bytes > data - t.offset)
        fail_input(what, " takes ", t.bytes, " bytes from ", t.offset, " of the file's ", data,
                   " bytes of data; the file is truncated or damaged");
      order.push_back(&t);
    }
    std::ranges::sort(order, {}, [](const GgufTensor* t) { return t->offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes)
        fail_input(path_, ": tensor \"", order[i]->name, "\" overlaps \"", order[i - 1]->name,
                   "\"");
  }

  Cursor in_;
  int64_t size_;
  const std::string& path_;
  GgufContents contents_;
  std::set<std::string> names_;
};

}  // namespace

GgufContents parse_gguf(std::span<const std::byte> file, const std::string& path) {
  return Parser(file, path).parse();
}

GgufFile::GgufFile(const std::string& path)
    : TensorSource(path), file_(path), contents_(parse_gguf(file_.bytes(), path)) {
  for (const GgufTensor& t : contents_.tensors) {
    const bool numbers = t.type->decode != nullptr;
    add({t.name, t.type->name, numbers ? DType::kF32 : t.type->dtype, t.shape, t.bytes, numbers});
  }
  check_mapping(file_.bytes());
}

void GgufFile::read_elements(size_t number, int64_t begin, const Tensor& destination) const {
  const GgufTensor& tensor = contents_.tensors[number];
  const GgufType& type = *tensor.type;
  const auto data = file_.bytes().subspan(static_cast<size_t>(contents_.data_start + tensor.offset),
                                          static_cast<size_t>(tensor.bytes));
  if (type.decode == nullptr && type.dtype.has_value()) {
    convert_elements(destination, *type.dtype,
                     data.subspan(static_cast<size_t>(begin * type.block_bytes),
                                  static_cast<size_t>(destination.numel() * type.block_bytes)));
    check_mapping(data);
    return;
  }
  constexpr int64_t kNumbers = 32 * kMaxGgufBlock;
  std::vector<float> numbers(static_cast<size_t>(kNumbers));
  const Tensor out = destination.reshape({destination.numel()});
  const int64_t end = begin + out.numel();
  for (int64_t at = begin; at < end;) {
    const int64_t first = at / type.block;
    const int64_t blocks = std::min(kNumbers / type.block, ceil_div(end, type.block) - first);
    for (int64_t b = 0; b < blocks; ++b)
      type.decode(data.data() + (first + b) * type.block_bytes, numbers.data() + b * type.block);
    const int64_t skipped = at - first * type.block;
    const int64_t taken = std::min(end - at, blocks * type.block - skipped);
    convert_elements(
        out.slice(0, at - begin, at - begin + taken),
        std::span(numbers).subspan(static_cast<size_t>(skipped), static_cast<size_t>(taken)));
    at += taken;
  }
  check_mapping(data);
}

}  // namespace trireme
