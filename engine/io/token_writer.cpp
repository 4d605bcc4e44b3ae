#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/io/token_file.h"

namespace trireme {
namespace {

template <class T>
void encode(std::span<const int32_t> tokens, std::string& out) {
  out.resize(tokens.size() * sizeof(T));
  char* to = out.data();
  for (const int32_t token : tokens) {
    TRIREME_CHECK(std::in_range<T>(token), "token ", token, " does not fit the file's type");
    const auto value = static_cast<T>(token);
    std::memcpy(to, &value, sizeof(T));
    to += sizeof(T);
  }
}

template <class T>
void put(AtomicFile& file, T value) {
  file.write(std::as_bytes(std::span(&value, 1)));
}

// Tokens that a merge copies at a time.
constexpr int64_t kCopyTokens = 1 << 20;

}  // namespace

TokenFileWriter::TokenFileWriter(const std::string& prefix, TokenType type)
    : prefix_(token_file_prefix(prefix)),
      type_(type),
      data_(prefix_ + ".bin"),
      index_(prefix_ + ".idx") {
  TRIREME_CHECK(type != TokenType::kU32 && type != TokenType::kU64, "Megatron has no code for ",
                token_type_name(type));
}

void TokenFileWriter::put_tokens(std::span<const int32_t> tokens) {
  switch (type_) {
    case TokenType::kU8: encode<uint8_t>(tokens, encoded_); break;
    case TokenType::kI8: encode<int8_t>(tokens, encoded_); break;
    case TokenType::kI16: encode<int16_t>(tokens, encoded_); break;
    case TokenType::kU16: encode<uint16_t>(tokens, encoded_); break;
    case TokenType::kI64: encode<int64_t>(tokens, encoded_); break;
    default: encode<int32_t>(tokens, encoded_); break;
  }
  data_.write(encoded_);
  num_tokens_ += static_cast<int64_t>(tokens.size());
}

void TokenFileWriter::add_document(std::span<const int32_t> tokens) {
  if (!std::in_range<int32_t>(tokens.size())) {
    fail_input("cannot write ", prefix_, ".idx: a document of ", tokens.size(),
               " tokens is longer than the format allows (2147483647); split the text");
  }
  const auto length = static_cast<int32_t>(tokens.size());
  add_document(tokens, {&length, 1});
}

void TokenFileWriter::add_document(std::span<const int32_t> tokens,
                                   std::span<const int32_t> lengths) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  TRIREME_CHECK(total == static_cast<int64_t>(tokens.size()), "the lengths add up to ", total,
                ", expected ", tokens.size(), " tokens");
  put_tokens(tokens);
  lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
  documents_.push_back(static_cast<int64_t>(lengths_.size()));
}

void TokenFileWriter::add_document_of(const TokenFile& file, int64_t document) {
  const int64_t first = file.document_begin(document), last = file.document_begin(document + 1);
  for (int64_t s = first; s < last; ++s) {
    lengths_.push_back(static_cast<int32_t>(file.sequence_length(s)));
  }
  documents_.push_back(static_cast<int64_t>(lengths_.size()));
  const int64_t end = file.sequence_begin(last);
  for (int64_t at = file.sequence_begin(first); at < end; at += kCopyTokens) {
    const int64_t count = std::min(kCopyTokens, end - at);
    copied_.resize(static_cast<size_t>(count));
    file.copy_tokens(at, count, copied_.data());
    put_tokens(copied_);
  }
}

void TokenFileWriter::add_all_of(const TokenFile& file) {
  for (int64_t d = 0; d < file.num_documents(); ++d) add_document_of(file, d);
}

void TokenFileWriter::commit() {
  index_.write(std::string_view("MMIDIDX\0\0", 9));
  put(index_, uint64_t{1});
  put(index_, static_cast<uint8_t>(type_));
  put(index_, static_cast<uint64_t>(lengths_.size()));
  put(index_, static_cast<uint64_t>(documents_.size()));
  index_.write(std::as_bytes(std::span(lengths_)));
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    put(index_, pointer);
    pointer += length * token_type_size(type_);
  }
  index_.write(std::as_bytes(std::span(documents_)));
  // Both are durable before the existing pair is touched: a full disk costs nothing.
  data_.sync();
  index_.sync();
  // An existing pair loses its index before its data changes: an index is never next to the data of
  // another pair.
  std::error_code ignored;
  std::filesystem::remove(prefix_ + ".idx", ignored);
  data_.commit();
  index_.commit();
}

}  // namespace trireme
