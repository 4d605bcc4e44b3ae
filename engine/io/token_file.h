// Token files: Megatron's indexed datasets, a pair PREFIX.bin and PREFIX.idx
// (docs/reference/data-format.md).
//
// The .bin is the concatenation of all token ids; the .idx stores the element type, the length and
// byte offset of each sequence and the first sequence of each document. Nothing in the .idx is
// aligned, hence the memcpy loads. Everything is little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/io/atomic_file.h"
#include "engine/io/mapped_file.h"

namespace trireme {

// Type of a token on disk. The first six have the codes of Megatron's format. kU32 and kU64 exist
// only in DeepSpeed's copy of the format, as codes 7 and 8 (its code 6 is uint16); 100 and 101 are
// internal numbers, never on disk.
enum class TokenType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU16 = 8,
  kU32 = 100,
  kU64 = 101,
};
int64_t token_type_size(TokenType type);           // bytes
std::string_view token_type_name(TokenType type);  // "uint16"
// Type that Megatron's preprocessing selects: 16 bits below 65500 ids, else 32.
TokenType token_type_for_vocabulary(int64_t vocab_size);

// Returns PREFIX without a trailing ".bin" or ".idx", which users may paste.
std::string token_file_prefix(const std::string& path);

// Read-only, memory-mapped pair of files; thread-safe. Opening checks the whole index for
// consistency and against the size of the .bin, so that no later read is out of bounds; InputError
// names the file and the problem.
class TokenFile {
 public:
  explicit TokenFile(const std::string& prefix);  // with or without .bin or .idx

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t sequence_begin(int64_t sequence) const;   // index of its first token; for
                                                    // num_sequences(): num_tokens()
  int64_t sequence_length(int64_t sequence) const;  // in tokens
  int64_t document_begin(int64_t document) const;   // index of its first sequence; for
                                                    // num_documents(): num_sequences()
  // Copies tokens [begin, begin + count) of the .bin to out (count). InputError if a value is not a
  // token id (negative, or above int32: possible with types other than uint8 and uint16) or if a
  // file has been truncated since it was opened; `out` is then partly written.
  void copy_tokens(int64_t begin, int64_t count, int32_t* out) const;

  TokenType type() const { return type_; }
  // "uint16", or "uint16 (DeepSpeed's code 6)" if the code has another meaning in Megatron.
  std::string type_text() const;
  const std::string& prefix() const { return prefix_; }

 private:
  struct Header;
  Header read_header() const;
  void choose_type(int code, int64_t total_tokens);
  int64_t check_lengths() const;
  void check_pointers() const;
  void check_documents() const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string prefix_;
  MappedFile index_, data_;
  TokenType type_ = TokenType::kU16;
  int code_ = 0;  // as written
  int64_t num_tokens_ = 0, num_sequences_ = 0, num_documents_ = 0;
  const std::byte* lengths_ = nullptr;    // (sequences) int32
  const std::byte* pointers_ = nullptr;   // (sequences) int64, bytes
  const std::byte* documents_ = nullptr;  // (documents + 1) int64
};

// Writer of a pair, of any type but kU32 and kU64. Both files grow under temporary names. commit()
// makes both durable there, removes an existing .idx, then renames the .bin first and the .idx
// last, so that a pair with an .idx is complete. commit() leaves an existing pair unchanged if the
// disk has no room for the new one.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::string& prefix, TokenType type);

  // Appends a document of one sequence; InputError for more than 2^31 - 1 tokens. Here and below,
  // CheckFailed for a token that does not fit the type.
  void add_document(std::span<const int32_t> tokens);
  // lengths: one per sequence, in tokens; they must add up to the number of tokens.
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> lengths);
  // Copies a document of another file, of any type; its tokens must fit this file's type.
  void add_document_of(const TokenFile& file, int64_t document);
  void add_all_of(const TokenFile& file);
  void commit();

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return static_cast<int64_t>(documents_.size()) - 1; }

 private:
  void put_tokens(std::span<const int32_t> tokens);
  std::string prefix_;
  TokenType type_;
  AtomicFile data_, index_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_{0};
  std::string encoded_;          // reused by put_tokens
  std::vector<int32_t> copied_;  // reused by add_document_of
  int64_t num_tokens_ = 0;
};

}  // namespace trireme
