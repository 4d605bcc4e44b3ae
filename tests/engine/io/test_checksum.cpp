#include <gtest/gtest.h>

#include <string>

#include "engine/io/checksum.h"

namespace trireme::test_checksum {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

TEST(Checksum, StreamEqualsWholeHoweverItIsCut) {
  std::string data(5000, ' ');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i % 251);
  for (const size_t piece : {1u, 7u, 256u, 1024u, 4999u, 5000u}) {
    ChecksumStream stream;
    for (size_t at = 0; at < data.size(); at += piece) {
      stream.update(bytes_of(data).subspan(at, std::min(piece, data.size() - at)));
    }
    EXPECT_EQ(stream.value(), checksum(bytes_of(data)));
  }
}

TEST(Checksum, EveryBitCounts) {
  std::string data(300, 'q');
  const uint64_t whole = checksum(bytes_of(data));
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(checksum(bytes_of(data)), whole) << "bit " << bit;
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
  }
}

TEST(Checksum, KnownValuesAndText) {
  // XXH3-64 of the empty string with seed 0, published by the library's author.
  EXPECT_EQ(checksum({}), 0x2d06800538d394c2u);
  EXPECT_EQ(checksum_text(0x00ab0000000000cdu), "00ab0000000000cd");
  uint64_t value = 0;
  EXPECT_TRUE(parse_checksum("2d06800538d394c2", value));
  EXPECT_EQ(value, 0x2d06800538d394c2u);
  for (const char* bad : {"", "2d06800538d394c", "2d06800538d394c22", "2D06800538D394C2",
                          "2d06800538d394cg", " d06800538d394c2"}) {
    EXPECT_FALSE(parse_checksum(bad, value)) << bad;
  }
}

TEST(Checksum, Crc32cTestVectors) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
}

}  // namespace
}  // namespace trireme::test_checksum
