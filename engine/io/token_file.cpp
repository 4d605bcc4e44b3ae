#include "engine/io/token_file.h"

#include <bit>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/io/mapping_guard.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kOldMagic("TNTIDX\0\0", 8);
constexpr uint64_t kVersion = 1;
constexpr int64_t kHeaderBytes = 34;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
int64_t load_at(const std::byte* array, int64_t i) {
  return static_cast<int64_t>(load<T>(array + i * static_cast<int64_t>(sizeof(T))));
}

// First index whose element is not an int32 >= 0, or count.
template <class T>
int64_t convert(const std::byte* from, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = load<T>(from + i * static_cast<int64_t>(sizeof(T)));
    if (!std::in_range<int32_t>(value) || std::cmp_less(value, 0)) return i;
    out[i] = static_cast<int32_t>(static_cast<std::make_unsigned_t<T>>(value));
  }
  return count;
}

}  // namespace

int64_t token_type_size(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8: return 1;
    case TokenType::kI16:
    case TokenType::kU16: return 2;
    case TokenType::kI32:
    case TokenType::kU32: return 4;
    case TokenType::kI64:
    case TokenType::kU64: return 8;
  }
  TRIREME_UNREACHABLE("token type ", static_cast<int>(type));
}

std::string_view token_type_name(TokenType type) {
  switch (type) {
    case TokenType::kU8: return "uint8";
    case TokenType::kI8: return "int8";
    case TokenType::kI16: return "int16";
    case TokenType::kI32: return "int32";
    case TokenType::kI64: return "int64";
    case TokenType::kU16: return "uint16";
    case TokenType::kU32: return "uint32";
    case TokenType::kU64: return "uint64";
  }
  TRIREME_UNREACHABLE("token type ", static_cast<int>(type));
}

TokenType token_type_for_vocabulary(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32;
}

std::string token_file_prefix(const std::string& path) {
  if (path.ends_with(".bin") || path.ends_with(".idx")) return path.substr(0, path.size() - 4);
  return path;
}

struct TokenFile::Header {
  int code = 0;
  uint64_t sequences = 0, document_entries = 0;
};

TokenFile::TokenFile(const std::string& prefix)
    : prefix_(token_file_prefix(prefix)), index_(prefix_ + ".idx"), data_(prefix_ + ".bin") {
  const Header header = read_header();
  // Each sequence takes 12 bytes and each entry of the document array 8, so counts that pass these
  // two comparisons cannot overflow the sums below.
  const int64_t room = index_.size() - kHeaderBytes;
  if (header.sequences > static_cast<uint64_t>(room) / 12 ||
      header.document_entries > static_cast<uint64_t>(room) / 8) {
    fail(concat("the header promises ", header.sequences, " sequences and ",
                header.document_entries, " document entries, more than its ", index_.size(),
                " bytes can hold: it is truncated or damaged"));
  }
  num_sequences_ = static_cast<int64_t>(header.sequences);
  const auto entries = static_cast<int64_t>(header.document_entries);
  const int64_t arrays = 12 * num_sequences_ + 8 * entries;
  if (num_sequences_ > 0 && room == arrays + num_sequences_) {
    fail(
        "it describes a multimodal data set (it has modes), which is not available in this "
        "version");
  }
  if (room != arrays) {
    fail(concat("it has ", index_.size(), " bytes where its header calls for ",
                kHeaderBytes + arrays, ": it is truncated or damaged"));
  }
  if (entries < 1) fail("its document array is empty; it must begin with 0");
  num_documents_ = entries - 1;
  lengths_ = index_.bytes().data() + kHeaderBytes;
  pointers_ = lengths_ + 4 * num_sequences_;
  documents_ = pointers_ + 8 * num_sequences_;
  num_tokens_ = check_lengths();
  choose_type(header.code, num_tokens_);
  check_pointers();
  check_documents();
}

void TokenFile::fail(const std::string& what) const {
  fail_input("cannot use token file ", index_.path(), ": ", what);
}

TokenFile::Header TokenFile::read_header() const {
  const std::string_view bytes(reinterpret_cast<const char*>(index_.bytes().data()),
                               index_.bytes().size());
  if (bytes.starts_with(kOldMagic)) {
    fail(
        "it has DeepSpeed's old TNTIDX format; convert the text again with `trireme data prepare`");
  }
  if (!bytes.starts_with(kMagic))
    fail("it does not begin with MMIDIDX, so it is not a token index");
  if (bytes.size() < kHeaderBytes) {
    fail(concat("it has ", bytes.size(), " bytes, fewer than its header of ", kHeaderBytes));
  }
  const std::byte* at = index_.bytes().data();
  const auto version = load<uint64_t>(at + 9);
  if (version != kVersion) {
    fail(concat("it has format version ", version, "; version ", kVersion, " is supported"));
  }
  return {load<uint8_t>(at + 17), load<uint64_t>(at + 18), load<uint64_t>(at + 26)};
}

int64_t TokenFile::check_lengths() const {
  int64_t total = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int64_t length = load_at<int32_t>(lengths_, i);
    if (length < 0) fail(concat("sequence ", i, " has the negative length ", length));
    total += length;  // at most 2^31 times the number of sequences, far below 2^63
  }
  return total;
}

// Codes 6, 7 and 8 mean float64, float32 and uint16 in Megatron, uint16, uint32 and uint64 in
// DeepSpeed. The size of the .bin decides; floating-point numbers are not tokens.
void TokenFile::choose_type(int code, int64_t total_tokens) {
  code_ = code;
  const int64_t bytes = data_.size();
  const auto fits = [&](TokenType type) {
    return total_tokens <= bytes && total_tokens * token_type_size(type) == bytes;
  };
  if (code >= 1 && code <= 5) {
    type_ = static_cast<TokenType>(code);
  } else if (code == 6) {
    type_ = TokenType::kU16;
  } else if (code == 7) {
    type_ = TokenType::kU32;
  } else if (code == 8) {
    type_ = fits(TokenType::kU64) && total_tokens > 0 ? TokenType::kU64 : TokenType::kU16;
  } else {
    fail(concat("element type code ", code, " is not supported; supported: 1 to 8"));
  }
  if (fits(type_)) return;
  if ((code == 6 || code == 7) && total_tokens <= bytes / 8 && total_tokens * 8 == bytes) {
    fail(concat("element type code ", code, " with 8 bytes a token means float64, not ",
                "token ids"));
  }
  fail(concat("its ", num_sequences_, " sequences hold ", total_tokens, " tokens of ",
              token_type_size(type_), " bytes, but ", data_.path(), " has ", bytes,
              " bytes: one of the two is truncated, or they belong to different data sets"));
}

void TokenFile::check_pointers() const {
  const int64_t size = token_type_size(type_);
  int64_t expected = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int64_t pointer = load_at<int64_t>(pointers_, i);
    if (pointer != expected) {
      fail(concat("sequence ", i, " is recorded at byte ", pointer, " of the .bin; the ",
                  "lengths before it give byte ", expected));
    }
    expected += size * load_at<int32_t>(lengths_, i);
  }
}

void TokenFile::check_documents() const {
  int64_t previous = 0;
  for (int64_t d = 0; d <= num_documents_; ++d) {
    const int64_t begin = load_at<int64_t>(documents_, d);
    if (d == 0 && begin != 0)
      fail(concat("its document array begins with ", begin, ", expected 0"));
    if (begin < previous || begin > num_sequences_) {
      fail(concat("entry ", d, " of its document array is ", begin,
                  "; expected a sequence between ", previous, " and ", num_sequences_));
    }
    previous = begin;
  }
  if (previous != num_sequences_) {
    fail(concat("its document array ends with sequence ", previous, ", expected ", num_sequences_));
  }
}

int64_t TokenFile::sequence_begin(int64_t sequence) const {
  TRIREME_CHECK(sequence >= 0 && sequence <= num_sequences_, "sequence ", sequence, " of ",
                num_sequences_, " in ", prefix_);
  if (sequence == num_sequences_) return num_tokens_;
  return load_at<int64_t>(pointers_, sequence) / token_type_size(type_);
}

int64_t TokenFile::sequence_length(int64_t sequence) const {
  TRIREME_CHECK(sequence >= 0 && sequence < num_sequences_, "sequence ", sequence, " of ",
                num_sequences_, " in ", prefix_);
  return load_at<int32_t>(lengths_, sequence);
}

int64_t TokenFile::document_begin(int64_t document) const {
  TRIREME_CHECK(document >= 0 && document <= num_documents_, "document ", document, " of ",
                num_documents_, " in ", prefix_);
  return load_at<int64_t>(documents_, document);
}

void TokenFile::copy_tokens(int64_t begin, int64_t count, int32_t* out) const {
  TRIREME_CHECK(begin >= 0 && count >= 0 && begin <= num_tokens_ && count <= num_tokens_ - begin,
                count, " tokens from ", begin, " on exceed the ", num_tokens_, " in ", prefix_);
  const std::byte* from = data_.bytes().data() + begin * token_type_size(type_);
  const int64_t good = [&] {
    switch (type_) {
      case TokenType::kU8: return convert<uint8_t>(from, count, out);
      case TokenType::kI8: return convert<int8_t>(from, count, out);
      case TokenType::kI16: return convert<int16_t>(from, count, out);
      case TokenType::kU16: return convert<uint16_t>(from, count, out);
      case TokenType::kI32: return convert<int32_t>(from, count, out);
      case TokenType::kU32: return convert<uint32_t>(from, count, out);
      case TokenType::kI64: return convert<int64_t>(from, count, out);
      case TokenType::kU64: return convert<uint64_t>(from, count, out);
    }
    TRIREME_UNREACHABLE("token type ", static_cast<int>(type_));
  }();
  check_mapping(index_.bytes());
  check_mapping(data_.bytes());
  if (good != count) {
    fail_input("token ", begin + good, " of ", data_.path(),
               " is not a token id (it is negative or ", "above ",
               std::numeric_limits<int32_t>::max(), "); the file is damaged or of ",
               "another type than ", type_text());
  }
}

std::string TokenFile::type_text() const {
  const bool megatron = static_cast<int>(type_) == code_;
  return concat(token_type_name(type_), megatron ? "" : concat(" (DeepSpeed's code ", code_, ")"));
}

}  // namespace trireme
