// Sequence tables for cuDNN, rows outside of all sequences, and packed statistics.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/memory.h"
#include "engine/device/context.h"
#include "engine/ops/attention/sequence_table.cuda.h"

namespace trireme::test {
namespace {

template <class T>
Buffer on_device(cuda::Context& gpu, const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  Buffer buffer("operand", bytes, Memory::kDevice);
  cuda::upload(gpu, buffer.data(), values.data(), bytes);
  return buffer;
}

template <class T>
std::vector<T> on_host(cuda::Context& gpu, const Buffer& buffer, size_t count) {
  std::vector<T> values(count);
  cuda::download(gpu, values.data(), buffer.data(), static_cast<int64_t>(count * sizeof(T)));
  return values;
}

template <class T>
T* pointer(Buffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

TEST(SequenceTable, ReportsLengthsAndOffsetsAndThatTheRestIsEmpty) {
  const auto gpu = cuda::open(0);
  constexpr int64_t kRoom = 4;
  Buffer cu = on_device<int32_t>(*gpu, {0, 5, 5, 12});
  Buffer lengths = on_device(*gpu, std::vector<int32_t>(kRoom, -1));
  Buffer offsets = on_device(*gpu, std::vector<int64_t>(2 * (kRoom + 1), -1));
  const int64_t wide = int64_t{1} << 40;  // offsets exceed 32 bits
  write_sequence_table(*gpu, {.lengths = pointer<int32_t>(lengths),
                              .offsets = pointer<int64_t>(offsets),
                              .cu = pointer<int32_t>(cu),
                              .sequences = 3,
                              .room = kRoom,
                              .strides = {1, wide},
                              .count = 2});
  EXPECT_EQ(on_host<int32_t>(*gpu, lengths, kRoom), (std::vector<int32_t>{5, 0, 7, 0}));
  EXPECT_EQ(on_host<int64_t>(*gpu, offsets, 2 * (kRoom + 1)),
            (std::vector<int64_t>{0, 5, 5, 12, 12, 0, 5 * wide, 5 * wide, 12 * wide, 12 * wide}));
}

TEST(SequenceTable, RowsOfNoSequenceAreCleared) {
  const auto gpu = cuda::open(0);
  constexpr int64_t kRows = 200, kHeads = 2, kWidth = 3, kStride = 7;  // one element between rows
  for (const int32_t first : {0, 1, 130, 200}) {
    SCOPED_TRACE(first);
    Buffer data = on_device(*gpu, std::vector<float>(kRows * kStride, 1.0f));
    Buffer lse = on_device(*gpu, std::vector<float>(kHeads * kRows, 2.0f));
    Buffer at = on_device<int32_t>(*gpu, {first});
    clear_rows(*gpu, cuda::RowsWithoutSequence<float>{.data = pointer<float>(data),
                                                      .row = kStride,
                                                      .head = kWidth,
                                                      .rows = kRows,
                                                      .heads = kHeads,
                                                      .width = kWidth,
                                                      .first = pointer<int32_t>(at),
                                                      .lse = pointer<float>(lse)});
    const auto got = on_host<float>(*gpu, data, kRows * kStride);
    const auto sums = on_host<float>(*gpu, lse, kHeads * kRows);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kStride; ++i)
        ASSERT_EQ(got[static_cast<size_t>(row * kStride + i)],
                  row >= first && i < kHeads * kWidth ? 0.0f : 1.0f)
            << row << " " << i;
      for (int64_t h = 0; h < kHeads; ++h)
        ASSERT_EQ(sums[static_cast<size_t>(h * kRows + row)],
                  row >= first ? -std::numeric_limits<float>::infinity() : 2.0f);
    }
  }
}

TEST(SequenceTable, StatisticsMoveFromHeadsToSequencesAndBack) {
  const auto gpu = cuda::open(0);
  constexpr int64_t kBatch = 1030, kHeads = 3, kLength = 131;  // more than one block of each
  constexpr int64_t kTokens = kBatch * kLength;
  std::vector<float> values(kHeads * kTokens);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Buffer by_head = on_device(*gpu, values);
  Buffer packed = on_device(*gpu, std::vector<float>(values.size(), -1.0f));
  Buffer back = on_device(*gpu, std::vector<float>(values.size(), -1.0f));
  cuda::StatisticRows rows{.to = pointer<float>(packed),
                           .from = pointer<float>(by_head),
                           .batch = kBatch,
                           .heads = kHeads,
                           .length = kLength,
                           .to_batch = kHeads * kLength,
                           .to_head = kLength,
                           .from_batch = kLength,
                           .from_head = kTokens};
  copy_statistic_rows(*gpu, rows);
  const auto got = on_host<float>(*gpu, packed, values.size());
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t t = 0; t < kLength; ++t)
        ASSERT_EQ(got[static_cast<size_t>((b * kHeads + h) * kLength + t)],
                  values[static_cast<size_t>(h * kTokens + b * kLength + t)]);
  std::swap(rows.to_batch, rows.from_batch);
  std::swap(rows.to_head, rows.from_head);
  rows.from = rows.to;
  rows.to = pointer<float>(back);
  copy_statistic_rows(*gpu, rows);
  EXPECT_EQ(on_host<float>(*gpu, back, values.size()), values);
}

}  // namespace
}  // namespace trireme::test
