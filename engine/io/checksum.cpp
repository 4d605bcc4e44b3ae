#include "engine/io/checksum.h"

#include <xxhash.h>

#include <array>

#include "engine/core/error.h"

namespace trireme {

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(uint64_t value) {
  std::string digits(16, '0');
  for (size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[(value >> (60 - 4 * i)) & 15];
  return digits;
}

bool parse_checksum(const std::string& digits, uint64_t& value) {
  if (digits.size() != 16) return false;
  uint64_t parsed = 0;
  for (const char c : digits) {
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && (c < 'a' || c > 'f')) return false;
    parsed = parsed << 4 | static_cast<uint64_t>(decimal ? c - '0' : c - 'a' + 10);
  }
  value = parsed;
  return true;
}

struct ChecksumStream::State {
  XXH3_state_t* xxh = XXH3_createState();
};

void ChecksumStream::Free::operator()(State* state) const {
  XXH3_freeState(state->xxh);
  delete state;
}

ChecksumStream::ChecksumStream() : state_(new State) {
  TRIREME_CHECK(state_->xxh != nullptr, "no memory for a checksum state");
  reset();
}

void ChecksumStream::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t ChecksumStream::value() const { return XXH3_64bits_digest(state_->xxh); }

void ChecksumStream::reset() { XXH3_64bits_reset(state_->xxh); }

uint32_t crc32c(std::span<const std::byte> bytes) {
  // Reflected polynomial, one table step per byte: event files are small.
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1u) != 0 ? 0x82F63B78u : 0u);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<uint32_t>(b)) & 0xffu];
  }
  return ~crc;
}

}  // namespace trireme
