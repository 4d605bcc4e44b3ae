// Checksums of file contents: XXH3, 64 bits. They detect accidents (torn writes, bit flips,
// truncation), not forgeries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme {

uint64_t checksum(std::span<const std::byte> bytes);
std::string checksum_text(uint64_t value);  // 16 lower-case hex digits
// Inverse of checksum_text(); false for anything other than 16 lower-case hex digits.
bool parse_checksum(const std::string& digits, uint64_t& value);

// Checksum of data passed in pieces: equal to checksum() of the whole.
class ChecksumStream {
 public:
  ChecksumStream();
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;
  void reset();

 private:
  struct State;
  struct Free {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Free> state_;
};

// CRC-32C (Castagnoli, polynomial 0x1EDC6F41): the checksum inside TFRecord frames.
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace trireme
