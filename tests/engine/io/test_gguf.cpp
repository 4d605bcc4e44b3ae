// GGUF files: blocks compared with the Python package's values (tests/golden/make_gguf.py), round
// trips, and errors for damaged files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "engine/io/gguf.h"
#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"

namespace trireme::test::test_gguf {
namespace {

const std::string kFolder = concat(test::source_folder(), "/tests/golden/gguf/");

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<float> read(const GgufFile& file, const std::string& name, int64_t begin,
                        int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  file.read(*file.find(name), begin, Tensor(out.data(), DType::kF32, Shape{count}));
  return out;
}

TEST(Gguf, EveryTypeIsExact) {
  const GgufFile file(kFolder + "blocks.gguf");
  const SafetensorsReader expected(kFolder + "blocks.safetensors");
  for (const char* name : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"}) {
    const SourceTensor* tensor = file.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->dtype_name, name);
    const ConstTensor wanted = expected.tensor(name);
    const std::vector<float> found = read(file, name, 0, wanted.numel());
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], wanted.as<float>()[i]) << name << "[" << i << "]";
    // Any range, whichever blocks it crosses.
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 1}, {31, 2}, {100, 700}})
      EXPECT_TRUE(std::ranges::equal(
          read(file, name, begin, count),
          std::span(found).subspan(static_cast<size_t>(begin), static_cast<size_t>(count))))
          << name;
  }
}

TEST(Gguf, MetadataOfAllKinds) {
  const GgufFile file(kFolder + "blocks.gguf");
  EXPECT_EQ(file.get<std::string>("general.architecture"), "llama");
  EXPECT_EQ(file.get<int64_t>("llama.context_length"), 128);
  EXPECT_FLOAT_EQ(static_cast<float>(*file.get<double>("llama.attention.layer_norm_rms_epsilon")),
                  1e-5F);
  EXPECT_EQ(file.get<std::vector<std::string>>("test.strings"),
            (std::vector<std::string>{"a", "", "\xC3\xA9\xE4\xB8\xAD"}));
  EXPECT_EQ(file.get<std::vector<int64_t>>("test.integers"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(file.get<std::vector<double>>("test.numbers"), (std::vector<double>{0.5, -0.25}));
  EXPECT_EQ(file.get<bool>("test.truth"), true);
  EXPECT_FALSE(file.get<bool>("test.absent").has_value());
  EXPECT_THROW(file.get<int64_t>("general.architecture"), InputError);
}

TEST(Gguf, BlocksAreEncodedAsByThePackage) {
  const SafetensorsReader expected(kFolder + "blocks.safetensors");
  const ConstTensor values = expected.tensor("F32");
  for (const char* name : {"Q8_0", "Q4_0"}) {
    const GgufType& type = *gguf_type(name);
    const ConstTensor wanted = expected.tensor(concat("encoded.", name));
    std::vector<std::byte> found(static_cast<size_t>(wanted.bytes()));
    for (int64_t b = 0; b < values.numel() / type.block; ++b)
      type.encode(values.as<float>() + b * type.block, found.data() + b * type.block_bytes);
    EXPECT_EQ(std::memcmp(found.data(), wanted.raw(), found.size()), 0) << name;
  }
}

// 256 values in blocks that differ strongly.
std::vector<std::vector<float>> unlike_blocks() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> blocks;
  const auto fill = [&](auto&& number) {
    std::vector<float> x(kMaxGgufBlock);
    for (size_t i = 0; i < x.size(); ++i) x[i] = number(i);
    blocks.push_back(std::move(x));
  };
  for (int k = 0; k < 20; ++k) fill([&](size_t) { return 0.02F * normal(random); });
  fill([](size_t) { return 0.0F; });
  fill([](size_t) { return 3.0F; });
  fill([](size_t) { return -3.0F; });
  fill([](size_t i) { return i == 77 ? -50.0F : 0.0F; });
  fill([&](size_t i) { return std::ldexp(normal(random), -static_cast<int>(i / 32)); });
  fill([&](size_t) { return 5 + 0.1F * normal(random); });
  return blocks;
}

float half_at(const std::vector<std::byte>& block, size_t at) {
  f16 value;
  std::memcpy(&value, block.data() + at, sizeof(value));
  return std::abs(static_cast<float>(value));
}

// Each group of values has its own scale. With the step of the whole range a value's error is at
// most half a step (a whole one, where the other end of a symmetric range has no code); the search
// finds no larger squared error. Scales and minima are then rounded to integer multiples of d and
// dmin, which changes a value by half a multiple times its code (a whole one, where the largest has
// no code), and d and dmin are rounded by 2^-11.
TEST(Gguf, BlocksOfManyScalesAreNear) {
  for (const auto& [name, group] : {std::pair{"Q4_K", 32}, {"Q6_K", 16}}) {
    const GgufType& type = *gguf_type(name);
    const bool affine = group == 32;
    for (const std::vector<float>& x : unlike_blocks()) {
      std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
      std::vector<float> y(x.size());
      type.encode(x.data(), block.data());
      type.decode(block.data(), y.data());
      const double d = half_at(block, affine ? 0 : 208), dmin = affine ? half_at(block, 2) : 0;
      const double stored = affine ? 15 * d / 2 + dmin / 2 + (15 * 63 * d + 63 * dmin) / 2048
                                   : 32 * d + 32 * 128 * d / 2048;
      for (size_t g = 0; g < x.size(); g += static_cast<size_t>(group)) {
        const auto part = std::span(x).subspan(g, static_cast<size_t>(group));
        const auto [low, high] = std::ranges::minmax(part);
        const double step = affine ? (high - std::min(0.0, static_cast<double>(low))) / 30
                                   : std::max(high, -low) / 32;
        RoundingError error;
        error.add(part, std::span(y).subspan(g, static_cast<size_t>(group)));
        EXPECT_LE(std::sqrt(error.squared_error / group), step + stored) << name << " from " << g;
      }
    }
  }
}

// For normally distributed values. 32 of them span about 4.1 standard deviations, 16 reach 1.9:
// uniform errors with steps of 4.1 / 15 and 1.9 / 32, plus a fifth for the rounding of scales to
// multiples of d.
TEST(Gguf, BlocksOfManyScalesAreNearlyOptimal) {
  for (const auto& [name, step] : {std::pair{"Q4_K", 4.1 / 15}, {"Q6_K", 1.9 / 32}}) {
    const GgufType& type = *gguf_type(name);
    RoundingError error;
    const auto blocks = unlike_blocks();
    for (size_t b = 0; b < 20; ++b) {
      std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
      std::vector<float> y(kMaxGgufBlock);
      type.encode(blocks[b].data(), block.data());
      type.decode(block.data(), y.data());
      error.add(blocks[b], y);
    }
    EXPECT_LT(error.relative(), 1.2 * step / std::sqrt(12)) << name;
    EXPECT_GT(error.relative(), 0.5 * step / std::sqrt(12)) << name;
  }
}

TEST(Gguf, WhatIsWrittenReadsBack) {
  const ScratchDirectory dir;
  std::vector<float> values(96);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 8 - 5;
  const GgufMetadata metadata = {{"general.architecture", std::string("llama")},
                                 {"a.count", int64_t{7}},
                                 {"a.negative", int64_t{-7}},
                                 {"a.large", int64_t{1} << 40},
                                 {"a.number", 0.5},
                                 {"a.truth", false},
                                 {"a.names", std::vector<std::string>{"x", "yz"}},
                                 {"a.ids", std::vector<int64_t>{3, -4}},
                                 {"a.scores", std::vector<double>{1.5, -2}}};
  {
    GgufWriter writer(dir / "x.gguf", metadata,
                      {{"one", gguf_type("F32"), {5}},
                       {"two", gguf_type("BF16"), {2, 3}},
                       {"three", gguf_type("Q8_0"), {2, 32}}});
    const auto piece = [&](int64_t begin, int64_t n) {
      writer.write(ConstTensor(values.data() + begin, DType::kF32, Shape{n}));
    };
    piece(0, 5);
    piece(5, 3);
    piece(8, 3);
    piece(32, 32);
    piece(64, 32);
    writer.commit();
    EXPECT_EQ(writer.bytes(), std::ssize(contents(dir / "x.gguf")));
  }
  const GgufFile file(dir / "x.gguf");
  EXPECT_TRUE(file.metadata() == metadata);
  EXPECT_EQ(read(file, "one", 0, 5), std::vector<float>(values.begin(), values.begin() + 5));
  EXPECT_EQ(read(file, "two", 0, 6), std::vector<float>(values.begin() + 5, values.begin() + 11));
  EXPECT_EQ(file.find("two")->shape, (std::vector<int64_t>{2, 3}));
  const std::vector<float> rounded = read(file, "three", 0, 64);
  for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(rounded[i], values[32 + i], 7.0 / 127);
}

void expect_refused(std::string file, const std::string& why) {
  try {
    parse_gguf(std::as_bytes(std::span(file)), "x");
    ADD_FAILURE() << "accepted: " << why;
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what() << "\n" << why;
  }
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string whole = contents(kFolder + "blocks.gguf");
  for (size_t size = 0; size < whole.size(); size += size < 2000 ? 1 : 997)
    EXPECT_THROW(parse_gguf(std::as_bytes(std::span(whole).first(size)), "x"), InputError) << size;
}

// Bytes of a small file, part by part.
struct Draft {
  std::string bytes = "GGUF";
  template <class T>
  Draft& number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Draft& text(const std::string& s) {
    number(uint64_t{s.size()});
    bytes += s;
    return *this;
  }
  Draft& tensor(const std::string& name, std::vector<uint64_t> sizes, uint32_t type,
                uint64_t offset) {
    text(name).number(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) number(size);
    return number(type).number(offset);
  }
  Draft& data(size_t bytes_of_data) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + bytes_of_data);
    return *this;
  }
};
Draft draft(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
  Draft d;
  return d.number(version).number(tensors).number(pairs);
}

TEST(Gguf, LiesAreRefused) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  expect_refused("GGML" + std::string(40, '\0'), "not a GGUF file");
  expect_refused(draft(0, 0, 1).bytes, "version 1");
  expect_refused(draft(0, 0, 0x03000000).bytes, "big-endian");
  expect_refused(draft(kHuge, 0).bytes, "tensors and");
  expect_refused(draft(0, 1).text("k").number(uint32_t{8}).number(kHuge).bytes, "a string of");
  expect_refused(draft(0, 1).text("k").number(uint32_t{9}).number(uint32_t{4}).number(kHuge).bytes,
                 "elements");
  expect_refused(
      draft(0, 1).text("k").number(uint32_t{9}).number(uint32_t{9}).number(uint64_t{1}).bytes +
          std::string(16, '\0'),
      "array of the unsupported type 9");
  expect_refused(draft(0, 1).text("k").number(uint32_t{99}).bytes, "unknown type 99");
  expect_refused(draft(0, 1).text("k").number(uint32_t{10}).number(~uint64_t{0}).bytes,
                 "exceeds a signed 64-bit integer");
  expect_refused(draft(0, 2)
                     .text("k")
                     .number(uint32_t{7})
                     .number(uint8_t{1})
                     .text("k")
                     .number(uint32_t{7})
                     .number(uint8_t{0})
                     .bytes,
                 "appears twice");
  expect_refused(draft(1, 0).tensor("t", {kHuge, 8}, 0, 0).data(64).bytes, "invalid dimension");
  expect_refused(draft(1, 0).tensor("t", {kHuge}, 0, 0).data(64).bytes, "more bytes than 64 bits");
  expect_refused(draft(1, 0).tensor("t", {0}, 0, 0).data(64).bytes, "invalid dimension 0");
  expect_refused(draft(1, 0).tensor("t", {8, 8, 8, 8, 8}, 0, 0).data(64).bytes, "5 dimensions");
  expect_refused(draft(1, 0).tensor("t", {8}, 77, 0).data(64).bytes, "unknown type 77");
  expect_refused(draft(1, 0).tensor("t", {33}, 8, 0).data(64).bytes, "rows of 33");
  expect_refused(draft(1, 0).tensor("t", {8}, 0, 8).data(64).bytes,
                 "expected a multiple of 32 bytes");
  expect_refused(draft(1, 0).tensor("t", {8}, 0, 64).data(64).bytes, "truncated or damaged");
  expect_refused(draft(1, 0).tensor("t", {8}, 0, kHuge).data(64).bytes, "truncated or damaged");
  expect_refused(draft(2, 0).tensor("t", {8}, 0, 0).tensor("u", {8}, 0, 0).data(64).bytes,
                 "overlaps");
  expect_refused(draft(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).data(64).bytes,
                 "appears twice");
  expect_refused(
      draft(0, 1).text("general.alignment").number(uint32_t{4}).number(uint32_t{24}).data(64).bytes,
      "power of two");
  const Draft good = draft(2, 0).tensor("t", {8}, 0, 0).tensor("u", {8}, 0, 32).data(64);
  EXPECT_EQ(parse_gguf(std::as_bytes(std::span(good.bytes)), "x").tensors.size(), 2U);
}

}  // namespace
}  // namespace trireme::test::test_gguf
