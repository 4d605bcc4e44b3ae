#include <cmath>

#include "engine/ops/rows/embedding.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_embedding {
namespace {

using Values = std::vector<double>;

// Ids with repetitions, including both ends of the table.
std::vector<int32_t> some_ids(int64_t rows, int64_t vocab) {
  std::vector<int32_t> ids;
  const RandomKey key{3, stream_id("ids")};
  for (int64_t t = 0; t < rows; ++t)
    ids.push_back(static_cast<int32_t>(philox_word(key, static_cast<uint64_t>(t)) %
                                       static_cast<uint32_t>(vocab)));
  if (rows > 1) ids[0] = static_cast<int32_t>(vocab - 1);
  if (rows > 2) ids[1] = 0;
  return ids;
}

TEST(Embedding, ForwardCopiesOrAddsRows) {
  const int64_t rows = 33, vocab = 7;
  const std::vector<int32_t> ids = some_ids(rows, vocab);
  for (DType dtype : kFloatTypes)
    for (int64_t columns : kOddSizes) {
      SCOPED_TRACE(concat(dtype, " ", columns));
      const Values table = stored(dtype, normals("table", vocab * columns));
      const Values before = stored(dtype, normals("y", rows * columns));
      Values copied(before.size()), added = before;
      for (size_t i = 0; i < before.size(); ++i) {
        const auto n = static_cast<size_t>(columns);
        copied[i] = table[static_cast<size_t>(ids[i / n]) * n + i % n];
        added[i] += copied[i];
      }
      const TestTensor tt(dtype, {vocab, columns}, table), ti({rows}, ids);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(dtype, {rows, columns}, before), z(dtype, {rows, columns}, before);
        embedding_forward(ctx, y, tt, ti, false);
        EXPECT_EQ(to_doubles(*y), copied);
        embedding_forward(ctx, z, tt, ti, true);
        EXPECT_EACH_CLOSE(z, added, tolerance(dtype));
        return outputs(y, z);
      });
    }
}

TEST(Embedding, BackwardAddsRowsOfTheSameId) {
  for (DType dtype : kFloatTypes)
    for (int64_t rows : {int64_t{1}, int64_t{127}})
      for (int64_t columns : kOddSizes)
        for (bool accumulate : {false, true}) {
          SCOPED_TRACE(concat(dtype, " ", rows, " x ", columns, " accumulate ", accumulate));
          const int64_t vocab = 7;
          const DType sums = sum_dtype(dtype);
          const std::vector<int32_t> ids = some_ids(rows, vocab);
          const Values dy = stored(dtype, normals("dy", rows * columns));
          const Values before = stored(sums, normals("before", vocab * columns));
          Values want = accumulate ? before : Values(before.size(), 0.0);
          const auto n = static_cast<size_t>(columns);
          for (size_t i = 0; i < dy.size(); ++i)
            want[static_cast<size_t>(ids[i / n]) * n + i % n] += dy[i];
          const TestTensor tdy(dtype, {rows, columns}, dy), ti({rows}, ids);
          for_each_kernel([&](Ctx& ctx) {
            TestTensor d(sums, {vocab, columns}, before);
            embedding_backward(ctx, d, tdy, ti, accumulate);
            // A row sums about rows / vocab values of magnitude one, which may cancel.
            const Values scale(want.size(), std::sqrt(static_cast<double>(rows)) + 1);
            EXPECT_WITHIN(d, want, scale, tolerance(sums, rows));
            return outputs(d);
          });
        }
}

TEST(Embedding, BackwardSharesColumnsAmongThreads) {
  // Large enough that every thread gets columns; all tokens have the same id.
  const int64_t rows = 600, columns = 300;
  const Values dy = normals("dy", rows * columns);
  Values want(static_cast<size_t>(2 * columns), 0.0);
  for (size_t i = 0; i < dy.size(); ++i)
    want[static_cast<size_t>(columns) + i % static_cast<size_t>(columns)] += dy[i];
  const TestTensor tdy(DType::kF64, {rows, columns}, dy);
  const TestTensor ids({rows}, std::vector<int32_t>(static_cast<size_t>(rows), 1));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor d(DType::kF64, {2, columns});
    embedding_backward(ctx, d, tdy, ids, false);
    EXPECT_CLOSE(d, want, tolerance(DType::kF64, rows));
    return outputs(d);
  });
}

TEST(Embedding, BadIdsAreNamedAndNothingIsWritten) {
  Ctx ctx(2, "test");
  const TestTensor table(DType::kF32, {5, 3}, normals("table", 15));
  for (int32_t bad : {5, -1, 1 << 30, -(1 << 30)}) {
    TestTensor y(DType::kF32, {2, 3}, Values(6, 1.0)), d(DType::kF32, {5, 3}, Values(15, 1.0));
    const TestTensor ids({2}, std::vector<int32_t>{4, bad});
    for (bool backward : {false, true}) try {
        if (backward)
          embedding_backward(ctx, d, y, ids, false);
        else
          embedding_forward(ctx, y, table, ids, false);
        ADD_FAILURE() << "accepted id " << bad;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(concat("ids[1] is ", bad)), std::string::npos)
            << e.what();
      }
    EXPECT_EQ(to_doubles(*y), Values(6, 1.0));
    EXPECT_EQ(to_doubles(*d), Values(15, 1.0));
  }
}

TEST(Embedding, AnEmptyTableHasNoIds) {
  Ctx ctx(1, "test");
  const TestTensor table(DType::kF32, {0, 3}), y(DType::kF32, {1, 3}), none(DType::kF32, {0, 3});
  EXPECT_THROW(embedding_forward(ctx, y, table, TestTensor({1}, std::vector<int32_t>{0}), false),
               Error);
  embedding_forward(ctx, none, table, TestTensor({0}, std::vector<int32_t>{}), false);
}

TEST(Embedding, PlanningReadsNoIds) {
  // In a planning run the ids are not available for the check.
  const TestTensor table(DType::kF32, {5, 3}), ids({2}, std::vector<int32_t>{99, 99});
  const TestTensor y(DType::kF32, {2, 3}, normals("y", 6)), d(DType::kF32, {5, 3});
  expect_plannable(
      [&](Ctx& ctx) {
        embedding_forward(ctx, y, table, ids, false);
        embedding_backward(ctx, d, y, ids, false);
      },
      {&y, &d});
}

}  // namespace
}  // namespace trireme::test::test_embedding
