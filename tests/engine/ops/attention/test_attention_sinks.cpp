// A sink is a key that every query sees and whose value is 0.
#include <cmath>
#include <limits>

#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_sinks.h"
#include "engine/ops/attention/paged_attention.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_attention_sinks {
namespace {

using Values = std::vector<double>;

constexpr int64_t kTokens = 11, kHeads = 4, kKvHeads = 2, kWidth = 6;
constexpr double kScale = 0.7;
const Shape kQueries{kTokens, kHeads, kWidth}, kKeys{kTokens, kKvHeads, kWidth};

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct Operands {
  Values q = normals("q", kQueries.numel()), k = normals("k", kKeys.numel()),
         v = normals("v", kKeys.numel()), sinks = {-1.5, 0.3, 4, -40};
};

Operands stored_operands(DType dtype) {
  Operands o;
  for (Values* values : {&o.q, &o.k, &o.v, &o.sinks}) *values = stored(dtype, *values);
  return o;
}

// Causal attention of one sequence, each softmax over its keys and the sink.
Values attend(const Operands& o, int64_t window) {
  Values out;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t shared = h / (kHeads / kKvHeads);
      double total = std::exp(o.sinks[at(h)]);
      Values sum(at(kWidth), 0.0);
      for (int64_t s = window > 0 ? std::max<int64_t>(0, t - window + 1) : 0; s <= t; ++s) {
        double score = 0;
        for (int64_t d = 0; d < kWidth; ++d)
          score += o.q[at((t * kHeads + h) * kWidth + d)] *
                   o.k[at((s * kKvHeads + shared) * kWidth + d)];
        const double weight = std::exp(kScale * score);
        total += weight;
        for (int64_t d = 0; d < kWidth; ++d)
          sum[at(d)] += weight * o.v[at((s * kKvHeads + shared) * kWidth + d)];
      }
      for (const double x : sum) out.push_back(x / total);
    }
  return out;
}

// Operands on the device of the kernels, and the arguments with the sinks.
struct Attended {
  Attended(DType dtype, const Operands& o, int64_t window)
      : q(dtype, kQueries, o.q),
        k(dtype, kKeys, o.k),
        v(dtype, kKeys, o.v),
        sinks(dtype, {kHeads}, o.sinks),
        out(dtype, kQueries),
        lse(sum_dtype(dtype), {kHeads, kTokens}) {
    args.scale = kScale;
    args.window = window;
    args.sinks = *sinks;
  }
  void forward(Ctx& ctx) { attention_forward(ctx, out, lse, q, k, v, cu, cu, args); }

  TestTensor q, k, v, sinks, out, lse;
  TestTensor cu{{2}, std::vector<int32_t>{0, kTokens}};
  AttentionArgs args;
};

TEST(AttentionSinks, AreKeysWithoutValues) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t window : {0, 3}) {
      SCOPED_TRACE(concat(dtype, ", window ", window));
      const Operands o = stored_operands(dtype);
      const Values want = attend(o, window);
      for_each_kernel([&](Ctx& ctx) {
        Attended run(dtype, o, window);
        run.forward(ctx);
        EXPECT_CLOSE(run.out, want, tolerance(dtype, kWidth + kTokens));
        return outputs(run.out, run.lse);
      });
    }
}

TEST(AttentionSinks, GradientsMatchFiniteDifferences) {
  const Operands o;
  const Values d_out = normals("d_out", kQueries.numel());
  Ctx ctx(1, "test");
  Attended run(DType::kF64, o, 4);
  run.forward(ctx);
  TestTensor dq(DType::kF64, kQueries), dk(DType::kF64, kKeys), dv(DType::kF64, kKeys);
  TestTensor d_sinks(DType::kF64, {kHeads}, Values(4, 100.0));
  run.args.d_sinks = *d_sinks;
  const TestTensor dy(DType::kF64, kQueries, d_out);
  attention_backward(ctx, dq, dk, dv, dy, run.out, run.lse, run.q, run.k, run.v, run.cu, run.cu,
                     run.args);
  const auto expect = [&](const TestTensor& got, Values Operands::*which) {
    const auto value = [&](const Values& changed) {
      Operands other = o;
      other.*which = changed;
      return attend(other, 4);
    };
    EXPECT_LT(worst_relative(to_doubles(*got), finite_difference_gradient(value, o.*which, d_out)),
              finite_difference_tolerance());
  };
  expect(dq, &Operands::q);
  expect(dk, &Operands::k);
  expect(dv, &Operands::v);
  expect(d_sinks, &Operands::sinks);
}

TEST(AttentionSinks, GradientsOfSinksAreAddedInFixedBlocks) {
  for (const DType dtype : kFloatTypes) {
    SCOPED_TRACE(concat(dtype));
    const int64_t tokens = 300;
    const Shape rows{tokens, kHeads, kWidth};
    const DType sums = sum_dtype(dtype);
    const Values out = stored(dtype, normals("out", rows.numel())),
                 d = stored(dtype, normals("dout", rows.numel())),
                 lse = stored(sums, normals("lse", kHeads * tokens)),
                 sinks = stored(dtype, normals("sinks", kHeads));
    Values want(at(kHeads), 5.0), magnitude(at(kHeads), 5.0);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < kHeads; ++h) {
        const double weight = std::exp(sinks[at(h)] - lse[at(h * tokens + t)]);
        for (int64_t c = 0; c < kWidth; ++c) {
          const size_t i = at((t * kHeads + h) * kWidth + c);
          want[at(h)] -= weight * d[i] * out[i];
          magnitude[at(h)] += weight * std::abs(d[i] * out[i]);
        }
      }
    const TestTensor t_out(dtype, rows, out), t_d(dtype, rows, d), t_sinks(dtype, {kHeads}, sinks),
        t_lse(sums, {kHeads, tokens}, lse);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor d_sinks(sums, {kHeads}, Values(at(kHeads), 5.0));
      attention_sinks_backward(ctx, d_sinks, t_d, t_out, t_lse, t_sinks, true);
      EXPECT_WITHIN(d_sinks, want, magnitude, tolerance(sums, tokens));
      return outputs(d_sinks);
    });
  }
}

TEST(AttentionSinks, AQueryWithoutKeysStaysAsItIs) {
  Ctx ctx(1, "test");
  const double none = -std::numeric_limits<double>::infinity();
  const TestTensor out(DType::kF64, {2, 1, 2}, {0, 0, 3, 4}), lse(DType::kF64, {1, 2}, {none, 1});
  const TestTensor sinks(DType::kF64, {1}, {1});
  attention_sinks_forward(ctx, out, lse, sinks);
  EXPECT_CLOSE(out, (Values{0, 0, 1.5, 2}), tolerance(DType::kF64, 4));
  EXPECT_EQ(to_doubles(*lse)[0], none);
  EXPECT_NEAR(to_doubles(*lse)[1], 1 + std::log(2.0), 1e-15);
  TestTensor d_sinks(DType::kF64, {1});
  attention_sinks_backward(ctx, d_sinks, out, out, lse, sinks, false);
  EXPECT_NEAR(to_doubles(*d_sinks)[0], -0.5 * (1.5 * 1.5 + 4), 1e-14);
}

// Over keys in blocks, in one step and in several.
TEST(AttentionSinks, PagedAttentionHasThem) {
  constexpr int64_t kAttentionBlock = 4, kBlocks = 3;
  for (const DType dtype : kFloatTypes)
    for (const int64_t window : {0, 3}) {
      SCOPED_TRACE(concat(dtype, ", window ", window));
      const Operands o = stored_operands(dtype);
      const Values want = attend(o, window);
      Ctx ctx(1, "test");
      Attended run(dtype, o, window);
      const Shape pool{kBlocks, kKvHeads, kAttentionBlock, kWidth};
      const TestTensor k_pool(dtype, pool), v_pool(dtype, pool);
      std::vector<int64_t> slots;
      for (int64_t t = 0; t < kTokens; ++t)
        slots.push_back((kBlocks - 1 - t / kAttentionBlock) * kAttentionBlock +
                        t % kAttentionBlock);
      paged_append(ctx, k_pool, v_pool, run.k, run.v, TestTensor({kTokens}, slots));
      const TestTensor table({1, kBlocks}, std::vector<int32_t>{2, 1, 0});
      for_each_kernel([&](Ctx& kernel) {
        TestTensor out(dtype, kQueries);
        for (int32_t begin = 0; begin < kTokens; begin += 7) {
          const int32_t end = std::min<int32_t>(kTokens, begin + 7), queries = end - begin;
          paged_attention(
              kernel, out->slice(0, begin, end), run.q->slice(0, begin, end), k_pool, v_pool, table,
              TestTensor({2}, std::vector<int32_t>{0, queries}),
              TestTensor({1}, std::vector<int32_t>{end}),
              {.scale = kScale, .window = window, .max_queries = queries, .sinks = *run.sinks});
        }
        EXPECT_CLOSE(out, want, tolerance(dtype, kWidth + kTokens));
        return outputs(out);
      });
    }
}

TEST(AttentionSinks, ShapesAreChecked) {
  Ctx ctx(1, "test");
  const TestTensor out(DType::kF32, {3, 2, 4}), lse(DType::kF32, {2, 3}), sinks(DType::kF32, {2}),
      few(DType::kF32, {1}), wide(DType::kF64, {2});
  EXPECT_THROW(attention_sinks_forward(ctx, out, lse, few), Error);
  EXPECT_THROW(attention_sinks_forward(ctx, out, lse, wide), Error);
  EXPECT_THROW(attention_sinks_forward(ctx, out, few, sinks), Error);
  EXPECT_THROW(attention_sinks_backward(ctx, few, out, out, lse, sinks, false), Error);
  EXPECT_THROW(attention_sinks_backward(ctx, sinks, lse, out, lse, sinks, false), Error);
  const ArenaPlan plan = expect_plannable(
      [&](Ctx& planning) {
        attention_sinks_forward(planning, out, lse, sinks);
        attention_sinks_backward(planning, sinks, out, out, lse, sinks, false);
      },
      {&out, &lse, &sinks});
  EXPECT_EQ(std::ssize(plan.blocks), 1) << "the partial sums of attention_sinks_backward";
}

}  // namespace
}  // namespace trireme::test::test_attention_sinks
