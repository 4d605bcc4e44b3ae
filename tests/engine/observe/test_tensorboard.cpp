#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/tensorboard.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_tensorboard {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    out += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    out += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  return out;
}

TEST(TensorBoard, AnEventIsTheseBytes) {
  // Field by field: wall_time 1.5 (fixed64), step 300 (varint), summary { value { tag "ab", 2.0f }
  // }.
  EXPECT_EQ(hex(scalar_event(1.5, 300, "ab", 2.0f)),
            "09000000000000f83f"  // 1: double
            "10ac02"              // 2: 300
            "2a0b"                // 5: 11 bytes
            "0a09"                // 1: 9 bytes
            "0a026162"            // 1: "ab"
            "1500000040");        // 2: 2.0f
}

TEST(TensorBoard, ARecordIsFramedByMaskedChecksums) {
  const std::string record = tfrecord("123456789");
  ASSERT_EQ(record.size(), 8u + 4 + 9 + 4);
  EXPECT_EQ(hex(record.substr(0, 8)), "0900000000000000");
  // crc32c("123456789") = e3069283, rotated right by 15, plus a282ead8 (TFRecord's mask).
  const uint32_t crc = 0xe3069283u;
  const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  uint32_t stored = 0;
  std::memcpy(&stored, record.data() + 21, 4);
  EXPECT_EQ(stored, masked);
}

TEST(TensorBoard, WritesVersionRestartAndScalars) {
  const test::ScratchDirectory dir;
  StepMetrics m;
  m.step = 11;
  m.loss = 2.5;
  {
    TensorBoardWriter writer(dir / "tensorboard", 11);
    writer.write(m);
    writer.scalar(12, "lm loss", 2.25);
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "tensorboard")) {
    ++files;
    const std::string bytes = read_small_file(entry.path().string());
    EXPECT_NE(bytes.find("brain.Event:2"), std::string::npos);
    size_t records = 0, at = 0;
    while (at + 12 <= bytes.size()) {
      uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, 8);
      ASSERT_LE(at + 16 + length, bytes.size());
      EXPECT_EQ(tfrecord(std::string_view(bytes).substr(at + 12, length)),
                bytes.substr(at, 16 + length));
      at += 16 + length;
      ++records;
    }
    EXPECT_EQ(at, bytes.size());
    EXPECT_EQ(records, 2u + 8 + 1);
  }
  EXPECT_EQ(files, 1u);
  std::vector<std::string> names;
  for (int start = 0; start < 3; ++start) {  // within the same second
    const std::string before = names.empty() ? "" : names.back();
    const TensorBoardWriter again(dir / "tensorboard", 12);
    names.clear();
    for (const auto& entry : std::filesystem::directory_iterator(dir / "tensorboard"))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    EXPECT_EQ(names.size(), 2u + static_cast<size_t>(start));
    EXPECT_GT(names.back(), before);  // sorted last
  }
  EXPECT_THROW(TensorBoardWriter("/proc/no", 0), InputError);
}

}  // namespace
}  // namespace trireme::test_tensorboard
