// Binary format of structs. A number is its native bytes: all ranks run the same build, which the
// handshake of the control channel checks. A bool is one byte, 0 or 1. A list or a string is its
// length (uint32) and its elements. A pair is its two values. A struct is its fields in the order
// of members() (as in serving/distributed/plan_fields.h); so is a shared_ptr to one.
//
// The reader trusts nothing. It rejects a list that cannot fit into the remaining bytes before it
// allocates memory for the list; expect_end() rejects bytes after the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {

// Malformed or unexpected message from a peer. An Error(kLostRank).
class BadMessage : public Error {
 public:
  explicit BadMessage(const std::string& what) : Error(what, ExitCode::kLostRank) {}
};

template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

class RecordWriter {
 public:
  template <class T>
  void put(const T& value) requires kIsNumber<T> {
    append(&value, sizeof value);
  }
  void put(bool value) { put(static_cast<uint8_t>(value)); }
  template <class T>
  void put(const std::vector<T>& list) {
    put(narrow<uint32_t>(list.size()));
    if constexpr (kIsNumber<T>)
      append(list.data(), list.size() * sizeof(T));
    else
      for (const T& one : list) put(one);
  }
  void put(const std::string& bytes) {
    put(narrow<uint32_t>(bytes.size()));
    append(bytes.data(), bytes.size());
  }
  template <class A, class B>
  void put(const std::pair<A, B>& both) {
    put(both.first);
    put(both.second);
  }
  template <class T>
  void put(const std::shared_ptr<const T>& record) {
    TRIREME_CHECK(record != nullptr, "a record to send is null");
    put(*record);
  }
  template <class T>
  void put(const T& record) requires std::is_class_v<T> {
    std::apply([this](const auto&... field) { (this->put(field), ...); }, members(record));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, size_t bytes) {
    if (bytes == 0) return;
    const size_t before = bytes_.size();
    bytes_.resize(before + bytes);
    std::memcpy(bytes_.data() + before, data, bytes);
  }
  std::vector<std::byte> bytes_;
};

// Reader of the format. BadMessage when the bytes end too early, or a list or bool is invalid.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  void get(T& value) requires kIsNumber<T> {
    copy(&value, sizeof value);
  }
  void get(bool& value) {
    uint8_t byte = 0;
    get(byte);
    if (byte > 1) throw BadMessage(concat("expected 0 or 1 for a flag, got ", byte));
    value = byte == 1;
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.clear();
    if constexpr (kIsNumber<T>) {
      list.resize(length(sizeof(T)));
      copy(list.data(), list.size() * sizeof(T));
    } else {
      for (size_t left = length(1); left > 0; --left) get(list.emplace_back());
    }
  }
  void get(std::string& bytes) {
    bytes.resize(length(1));
    copy(bytes.data(), bytes.size());
  }
  template <class A, class B>
  void get(std::pair<A, B>& both) {
    get(both.first);
    get(both.second);
  }
  template <class T>
  void get(std::shared_ptr<const T>& record) {
    auto read = std::make_shared<T>();
    get(*read);
    record = std::move(read);
  }
  template <class T>
  void get(T& record) requires std::is_class_v<T> {
    std::apply([this](auto&... field) { (this->get(field), ...); }, members(record));
  }
  void expect_end() const {
    if (!rest_.empty())
      throw BadMessage(concat(rest_.size(), " bytes after the end of the message"));
  }

 private:
  void copy(void* out, size_t bytes) {
    if (bytes > rest_.size())
      throw BadMessage(concat("message ends early: ", rest_.size(), " bytes left, at least ", bytes,
                              " expected"));
    if (bytes > 0) std::memcpy(out, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
  }
  // Length of a list whose elements take at least element_bytes each.
  size_t length(size_t element_bytes) {
    uint32_t count = 0;
    get(count);
    if (count > rest_.size() / element_bytes)
      throw BadMessage(
          concat("a list of ", count, " elements does not fit into ", rest_.size(), " bytes"));
    return count;
  }
  std::span<const std::byte> rest_;
};

}  // namespace trireme
