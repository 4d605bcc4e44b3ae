#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "parallel/comm/world.h"
#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/compressors/compressors.h"
#include "tests/support/compare.h"

namespace trireme::test::test_compressed_all_reduce {
namespace {

constexpr int64_t kElements = 2100;

// A matrix, a vector, an empty one, one of a single column, and one that is sent as it is; gaps
// between them as by alignment.
std::vector<CompressedPart> parts() {
  return {{0, 20, 60, {.stream = stream_id("a")}},
          {1216, 1, 333, {.stream = stream_id("b")}},
          {1600, 0, 60, {.stream = stream_id("c")}},
          {1600, 50, 1, {.stream = stream_id("d")}},
          {.offset = 1664, .rows = 1, .columns = 31, .exact = true},
          {1700, 8, 50, {.stream = stream_id("e")}}};
}

bool in_parts(int64_t i) {
  for (const CompressedPart& part : parts())
    if (i >= part.offset && i < part.offset + part.elements()) return true;
  return false;
}

std::vector<CompressionOptions> all_options() {
  return {{.bits = 8, .block = 16}, {.bits = 4, .block = 16},    {.bits = 1, .block = 32},
          {"top_k", 8, 0.1, 4, 20}, {"random_k", 8, 0.1, 4, 20}, {.method = "powersgd", .rank = 2}};
}

std::vector<double> input(int rank, int64_t round) {
  return normals(concat("rank ", rank, " round ", round), kElements);
}

struct Rounds {
  std::vector<std::vector<double>> result;  // of the last round, by rank
  std::vector<double> sent;                 // sum of the results of all rounds
  std::vector<double> left;                 // sum of all residuals, by flat element
};

void add_residual(std::vector<double>& left, const ShardMap& map, const ConstTensor& residual) {
  const std::vector<double> values = to_doubles(residual);
  map.for_each({0, kElements}, [&](const FlatRange& part, int64_t at) {
    for (int64_t i = part.begin; i < part.end; ++i)
      left[static_cast<size_t>(i)] += values[static_cast<size_t>(at + i - part.begin)];
  });
}

// Allocated state of this rank, with error feedback.
CompressionState state_of(const Communicator& world, const Compressor& compressor, Ctx& ctx,
                          const std::vector<CompressedPart>& list, DType dtype) {
  CompressionState state(compressor, list, dtype, {world.size(), world.rank()}, true);
  state.allocate(ctx);
  return state;
}

Rounds run_rounds(int ranks, const CompressionOptions& options, DType dtype, int rounds) {
  Rounds run;
  run.result.resize(static_cast<size_t>(ranks));
  run.sent.assign(kElements, 0.0);
  run.left.assign(kElements, 0.0);
  const auto compressor = make_compressor(options);
  std::mutex mutex;
  run_threads(ranks, [&](Communicator& world) {
    Ctx ctx(1, "test");
    CompressionState state = state_of(world, *compressor, ctx, parts(), dtype);
    CompressedAllReduce sum(world, state, ctx);
    for (int64_t round = 0; round < rounds; ++round) {
      const TestTensor data(dtype, {kElements}, input(world.rank(), round));
      sum.start(*data, round);
      sum.finish(*data);
      const std::vector<double> result = to_doubles(*data);
      const std::lock_guard lock(mutex);
      run.result[static_cast<size_t>(world.rank())] = result;
      if (world.rank() == 0)
        for (size_t i = 0; i < result.size(); ++i) run.sent[i] += result[i];
    }
    const std::lock_guard lock(mutex);
    add_residual(run.left, state.residual_map(), state.residual());
    add_residual(run.left, state.sum_residual_map(), state.sum_residual());
  });
  return run;
}

TEST(CompressedAllReduce, RanksAgreeAndNothingIsLost) {
  for (const CompressionOptions& options : all_options())
    for (int ranks : {1, 2, 3, 4}) {
      const Rounds got = run_rounds(ranks, options, DType::kF32, 5);
      double largest = 0;
      for (double v : got.sent) largest = std::max(largest, std::abs(v));
      for (int r = 1; r < ranks; ++r)
        for (size_t i = 0; i < kElements; ++i)
          if (in_parts(static_cast<int64_t>(i))) {
            ASSERT_EQ(got.result[static_cast<size_t>(r)][i], got.result[0][i]);
          }
      std::vector<double> total(kElements, 0.0);
      for (int r = 0; r < ranks; ++r)
        for (int64_t round = 0; round < 5; ++round) {
          const std::vector<double> x = input(r, round);
          for (size_t i = 0; i < x.size(); ++i) total[i] += x[i];
        }
      for (size_t i = 0; i < kElements; ++i)
        if (in_parts(static_cast<int64_t>(i))) {
          ASSERT_NEAR(got.sent[i] + got.left[i], total[i], 1e-5 * largest)
              << options.method << " " << ranks << " " << i;
        }
    }
}

TEST(CompressedAllReduce, ExactPartsAreExact) {
  const Rounds got = run_rounds(3, {.bits = 1, .block = 32}, DType::kF64, 1);
  const std::vector<double> a = input(0, 0), b = input(1, 0), c = input(2, 0);
  for (size_t i = 1664; i < 1695; ++i) {
    EXPECT_EQ(got.result[1][i], a[i] + b[i] + c[i]);
    EXPECT_EQ(got.left[i], 0.0);
  }
}

TEST(CompressedAllReduce, OthersElementsAreUntouched) {
  const Rounds got = run_rounds(2, {.bits = 8, .block = 16}, DType::kF32, 1);
  for (int r = 0; r < 2; ++r) {
    const std::vector<double> x = to_doubles(*TestTensor(DType::kF32, {kElements}, input(r, 0)));
    for (size_t i = 0; i < kElements; ++i)
      if (!in_parts(static_cast<int64_t>(i))) {
        ASSERT_EQ(got.result[static_cast<size_t>(r)][i], x[i]);
      }
  }
}

TEST(CompressedAllReduce, IsTheSumWhereNothingIsLeftOut) {
  for (const CompressionOptions& options : {CompressionOptions{"top_k", 8, 1.0, 4, 20},
                                            CompressionOptions{"random_k", 8, 1.0, 4, 20}}) {
    const Rounds got = run_rounds(3, options, DType::kF64, 1);
    const std::vector<double> a = input(0, 0), b = input(1, 0), c = input(2, 0);
    for (size_t i = 0; i < kElements; ++i)
      if (in_parts(static_cast<int64_t>(i))) {
        ASSERT_EQ(got.result[0][i], a[i] + b[i] + c[i]);
      }
  }
}

// Sum of a matrix and a vector over `ranks`, in three rounds. aside: elements of another matrix
// after them, which moves the cuts; its rows have the width of a block.
std::vector<double> sum_of_three_rounds(const CompressionOptions& options, int ranks,
                                        int64_t aside) {
  const auto compressor = make_compressor(options);
  const int64_t first = 5, stride = 9;  // a part of a larger matrix
  std::vector<CompressedPart> list{
      {0, 20, 60, {.stream = stream_id("a"), .first_block = first, .block_stride = stride}},
      {1200, 1, 333, {.stream = stream_id("b"), .first_block = 2}}};
  if (aside > 0) list.push_back({1533, aside / 60, 60, {.stream = stream_id("c")}});
  std::vector<double> result;
  run_threads(ranks, [&](Communicator& world) {
    Ctx ctx(1, "test");
    CompressionState state = state_of(world, *compressor, ctx, list, DType::kF32);
    CompressedAllReduce sum(world, state, ctx);
    std::vector<double> total(1533, 0.0);
    for (int64_t round = 0; round < 3; ++round) {
      const TestTensor data(DType::kF32, {1533 + aside},
                            normals(concat("rank", world.rank(), round), 1533 + aside));
      sum.start(*data, round);
      sum.finish(*data);
      const std::vector<double> values = to_doubles(*data);
      for (size_t i = 0; i < total.size(); ++i) total[i] += values[i];
    }
    if (world.rank() == 1) result = total;
  });
  return result;
}

TEST(CompressedAllReduce, DoesNotDependOnWhereMatricesAreCut) {
  for (const CompressionOptions& options : all_options())
    if (make_compressor(options)->can_divide())
      for (int ranks : {2, 3}) {
        const std::vector<double> wanted = sum_of_three_rounds(options, ranks, 0);
        for (int64_t aside : {600, 6000, 60000})
          EXPECT_EQ(sum_of_three_rounds(options, ranks, aside), wanted)
              << options.method << " " << options.bits << " " << ranks << " " << aside;
      }
}

// The scratch that a planning run records is what the all-reduce needs.
TEST(CompressedAllReduce, RunsInAPlannedArena) {
  for (const CompressionOptions& options : all_options()) {
    const auto compressor = make_compressor(options);
    run_threads(2, [&](Communicator& world) {
      Ctx ctx(1, "test");
      CompressionState state(*compressor, parts(), DType::kF32, {world.size(), world.rank()}, true);
      CompressionState direct_state = state_of(world, *compressor, ctx, parts(), DType::kF32);
      CompressedAllReduce sum(world, state, ctx), direct(world, direct_state, ctx);
      const TestTensor data(DType::kF32, {kElements}, input(world.rank(), 0));
      const TestTensor again(DType::kF32, {kElements}, input(world.rank(), 0));
      direct.start(*again, 0);
      direct.finish(*again);
      ctx.arena.begin_planning();
      sum.start(*data, 0);
      sum.finish(*data);
      const ArenaPlan plan = ctx.arena.end_planning();
      const TestTensor before(DType::kF32, {kElements}, input(world.rank(), 0));
      EXPECT_EQ(to_doubles(*data), to_doubles(*before));
      state.allocate(ctx);
      ctx.arena.reserve(plan.capacity);
      ctx.arena.begin_step(plan);
      sum.start(*data, 0);
      sum.finish(*data);
      ctx.arena.end_step();
      EXPECT_EQ(to_doubles(*data), to_doubles(*again)) << options.method;
    });
  }
}

TEST(CompressedAllReduce, RefusesWrongUse) {
  const auto compressor = make_compressor({.bits = 8, .block = 16});
  run_threads(1, [&](Communicator& world) {
    Ctx ctx(1, "test");
    const auto make = [&](const std::vector<CompressedPart>& list) {
      CompressionState(*compressor, list, DType::kF32, {}, true);
    };
    EXPECT_THROW(make({{0, 2, 16, {}}, {31, 1, 16, {}}}), Error);
    EXPECT_THROW(make({{0, -1, 16, {}}}), Error);
    CompressionState state = state_of(world, *compressor, ctx, {{0, 2, 16, {}}}, DType::kF32);
    CompressionState of_two(*compressor, {{0, 2, 16, {}}}, DType::kF32, {2, 0}, true);
    EXPECT_THROW(CompressedAllReduce(world, of_two, ctx), Error);
    CompressedAllReduce sum(world, state, ctx);
    const TestTensor data(DType::kF32, {32}, normals("x", 32)), few(DType::kF32, {31});
    const TestTensor wide(DType::kF64, {32});
    EXPECT_THROW(sum.finish(*data), Error);
    EXPECT_THROW(sum.start(*few, 0), Error);
    EXPECT_THROW(sum.start(*wide, 0), Error);
    sum.start(*data, 3);
    EXPECT_THROW(sum.start(*data, 4), Error);
    sum.finish(*data);
    EXPECT_THROW(sum.start(*data, 3), Error);
  });
}

TEST(CompressedAllReduce, SendsWhatTheFormulaSays) {
  for (const CompressionOptions& options : all_options())
    for (int ranks : {2, 3, 4}) {
      const auto compressor = make_compressor(options);
      std::vector<int64_t> wire;
      for (const auto& piece : cut_parts(parts(), ranks, *compressor)) {
        wire.push_back(0);
        for (const CompressedPart& part : piece)
          wire.back() +=
              compressor_of(part, *compressor).wire_bytes(DType::kF32, part.rows, part.columns);
      }
      CommOptions comm;
      comm.algorithm = CommAlgorithm::kRing;  // counts each byte where it is sent
      run_threads(
          ranks,
          [&](Communicator& world) {
            Ctx ctx(1, "test");
            CompressionState state = state_of(world, *compressor, ctx, parts(), DType::kF32);
            CompressedAllReduce sum(world, state, ctx);
            const TestTensor data(DType::kF32, {kElements}, input(world.rank(), 0));
            world.reset_traffic();
            sum.start(*data, 0);
            sum.finish(*data);
            int64_t want = 0;
            for (int r = 0; r < ranks; ++r)
              want += r == world.rank() ? (ranks - 1) * wire[static_cast<size_t>(r)]
                                        : wire[static_cast<size_t>(r)];
            EXPECT_EQ(state.sent_bytes(), want);
            EXPECT_EQ(world.traffic().total().sent_bytes, want) << options.method;
          },
          comm);
    }
}

TEST(CompressedAllReduce, PiecesAreConsecutiveAndEven) {
  const auto compressor = make_compressor({.bits = 8, .block = 16});
  for (int pieces : {1, 2, 3, 5, 100}) {
    int64_t row = 0, total = 0;
    for (const auto& piece :
         cut_parts({{0, 1000, 30, {}}, {30000, 1, 3000, {}}}, pieces, *compressor)) {
      int64_t elements = 0;
      for (const CompressedPart& part : piece) {
        EXPECT_EQ(part.offset, total + elements);
        if (part.offset < 30000) {
          EXPECT_EQ(part.key.first_block, 2 * row);
          EXPECT_EQ(part.rows == 1000 ? 2 : part.key.block_stride, 2);
          row += part.rows;
        } else {
          EXPECT_EQ(part.key.first_block, (part.offset - 30000) / 16);
        }
        elements += part.elements();
      }
      EXPECT_NEAR(static_cast<double>(elements), 33000.0 / pieces, 31);
      total += elements;
    }
    EXPECT_EQ(total, 33000);
  }
}

}  // namespace
}  // namespace trireme::test::test_compressed_all_reduce
