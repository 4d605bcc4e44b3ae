#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops/moe/expert_rows.h"
#include "engine/ops/moe/grouped_bias.h"
#include "engine/ops/moe/grouped_gemm.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_experts {
namespace {

using Values = std::vector<double>;
using Indices = std::vector<int32_t>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// k different experts for each token, some of them -1.
Indices some_choices(int64_t rows, int64_t k, int64_t experts) {
  Indices out;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t j = 0; j < k; ++j) {
      const uint32_t word = philox_word({2, stream_id("choices")}, static_cast<uint64_t>(t));
      const int64_t e = (word % 1000 + j) % experts;
      out.push_back(t % 5 == 4 || (t + j) % 7 == 0 ? -1 : static_cast<int32_t>(e));
    }
  return out;
}

struct Order {
  TestTensor pairs, places, counts;
  int64_t n = 0;
};

Order order_of(Ctx& ctx, const Indices& experts, int64_t k, int64_t num_experts) {
  const auto n = std::ssize(experts);
  Order o{TestTensor({n}, Indices(experts.size(), -9)),
          TestTensor({n / k, k}, Indices(experts.size(), -9)),
          TestTensor({num_experts}, std::vector<int64_t>(at(num_experts), -9))};
  order_by_expert(ctx, o.pairs, o.places, o.counts, TestTensor({n / k, k}, experts));
  for (int64_t e = 0; e < num_experts; ++e) o.n += o.counts->as<int64_t>()[e];
  return o;
}

TEST(Experts, OrderIsByExpertThenToken) {
  Ctx ctx(1, "test");
  const Indices experts = {2, 0, -1, 2, 0, 1, 2, -1};
  const Order o = order_of(ctx, experts, 2, 4);
  EXPECT_EQ(o.n, 6);
  EXPECT_SAME_BITS(o.pairs->slice(0, 0, 6), *TestTensor({6}, Indices{1, 4, 5, 0, 3, 6}));
  EXPECT_SAME_BITS(*o.places, *TestTensor({4, 2}, Indices{3, 0, -1, 4, 1, 2, 5, -1}));
  EXPECT_SAME_BITS(*o.counts, *TestTensor({4}, std::vector<int64_t>{2, 1, 3, 0}));
  EXPECT_THROW(order_of(ctx, {0, 4}, 2, 4), Error);
}

TEST(Experts, GatherAndCombineMatchPlainLoops) {
  const int64_t rows = 23, k = 3, experts = 7;
  Ctx plain_ctx(1, "test");
  const Indices choices = some_choices(rows, k, experts);
  const Order o = order_of(plain_ctx, choices, k, experts);
  for (DType dtype : kFloatTypes)
    for (int64_t c : {int64_t{1}, int64_t{7}, int64_t{33}, int64_t{127}}) {
      SCOPED_TRACE(concat(dtype, " ", c));
      const Values x = stored(dtype, normals("x", rows * c)),
                   r = stored(dtype, normals("r", o.n * c));
      const Values w = stored(sum_dtype(dtype), normals("w", rows * k));
      Values gathered(at(o.n * c)), y(x.size()), sums(x.size()), magnitude(x.size(), 1e-30);
      Values d_rows(r.size()), d_weights(w.size()), dot_size(w.size(), 1e-30);
      for (int64_t p = 0; p < rows * k; ++p) {
        const int64_t q = o.places->as<int32_t>()[p];
        for (int64_t i = 0; i < c && q >= 0; ++i) {
          const size_t from = at(q * c + i), to = at(p / k * c + i);
          gathered[from] = x[to];
          y[to] += w[at(p)] * r[from];
          sums[to] += r[from];
          magnitude[to] += (1 + std::abs(w[at(p)])) * std::abs(r[from]);
          d_rows[from] = w[at(p)] * x[to];
          d_weights[at(p)] += x[to] * r[from];
          dot_size[at(p)] += std::abs(x[to] * r[from]);
        }
      }
      const TestTensor tx(dtype, {rows, c}, x), tr(dtype, {o.n, c}, r);
      const TestTensor tw(sum_dtype(dtype), {rows, k}, w);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor g(dtype, {o.n, c}), ty(dtype, {rows, c}), ts(dtype, {rows, c});
        TestTensor dr(dtype, {o.n, c}), dw(sum_dtype(dtype), {rows, k}), over(dtype, {o.n, c}, r);
        gather_rows(ctx, g, tx, o.pairs->slice(0, 0, o.n), k);
        EXPECT_SAME_BITS(*g, *TestTensor(dtype, {o.n, c}, gathered));
        combine_rows(ctx, ty, tr, o.places, tw);
        EXPECT_WITHIN(ty, y, magnitude, tolerance(dtype, k));
        combine_rows(ctx, ts, tr, o.places, {});
        EXPECT_WITHIN(ts, sums, magnitude, tolerance(dtype, k));
        combine_rows_backward(ctx, dr, dw, tx, tr, o.places, tw);
        EXPECT_EACH_CLOSE(dr, d_rows, tolerance(dtype));
        EXPECT_WITHIN(dw, d_weights, dot_size, tolerance(sum_dtype(dtype), c));
        combine_rows_backward(ctx, over, dw, tx, over, o.places, tw);
        EXPECT_SAME_BITS(*over, *dr);
        return outputs(g, ty, ts, dr, dw);
      });
    }
}

TEST(Experts, GatesScaleRows) {
  const int64_t rows = 5, c = 33;
  for (DType dtype : kFloatTypes) {
    SCOPED_TRACE(concat(dtype));
    const Values x = stored(dtype, normals("x", rows * c)),
                 y = stored(dtype, normals("y", rows * c));
    const Values gate = stored(sum_dtype(dtype), normals("gate", rows));
    Values want(x.size()), added(x.size()), dots(at(rows)), size(x.size()), dot_size(at(rows));
    for (size_t i = 0; i < x.size(); ++i) {
      want[i] = gate[i / 33] * x[i];
      added[i] = y[i] + want[i];
      size[i] = std::abs(y[i]) + std::abs(want[i]);
      dots[i / 33] += x[i] * y[i];
      dot_size[i / 33] += std::abs(x[i] * y[i]);
    }
    const TestTensor tx(dtype, {rows, c}, x), tg(sum_dtype(dtype), {rows}, gate);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor ty(dtype, {rows, c}), over(dtype, {rows, c}, y), d(sum_dtype(dtype), {rows});
      dot_rows(ctx, d, tx, over);
      scale_rows(ctx, ty, tx, tg, false);
      scale_rows(ctx, over, tx, tg, true);
      EXPECT_EACH_CLOSE(ty, want, tolerance(dtype));
      EXPECT_WITHIN(over, added, size, tolerance(dtype));
      EXPECT_WITHIN(d, dots, dot_size, tolerance(sum_dtype(dtype), c));
      return outputs(ty, over, d);
    });
  }
}

// The same pairs are dropped, those of the largest rows, however tokens are divided among ranks.
TEST(Experts, CapacityDropsTheSamePairsInEveryLayout) {
  Ctx ctx(1, "test");
  const int64_t rows = 40, k = 2, experts = 5, capacity = 9;
  const Indices choices = some_choices(rows, k, experts);
  std::vector<int64_t> count(at(experts), 0);
  Indices want = choices;
  int64_t dropped = 0;
  for (size_t p = 0; p < want.size(); ++p)
    if (want[p] >= 0 && count[at(want[p])]++ >= capacity) {
      want[p] = -1;
      ++dropped;
    }
  ASSERT_GT(dropped, 3);
  for (int64_t ranks : {1, 2, 4}) {
    // Zigzag: rank r holds chunks r and 2 ranks - 1 - r of the tokens; gathered rank by rank.
    std::vector<int64_t> row;
    Indices all;
    for (int64_t r = 0; r < ranks; ++r)
      for (int64_t chunk : {r, 2 * ranks - 1 - r})
        for (int64_t t = rows * chunk / (2 * ranks); t < rows * (chunk + 1) / (2 * ranks); ++t) {
          row.push_back(1000 + t);
          for (int64_t j = 0; j < k; ++j) all.push_back(choices[at(t * k + j)]);
        }
    const TestTensor all_experts({rows, k}, all), all_rows({rows}, row);
    int64_t lost = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t first = rows * r / ranks, end = rows * (r + 1) / ranks;
      TestTensor own({end - first, k}, Indices(all.begin() + first * k, all.begin() + end * k));
      const TestTensor n({1}, std::vector<int64_t>{-1});
      drop_over_capacity(ctx, own, n, all_experts, all_rows, first, experts, capacity);
      lost += *n->as<int64_t>();
      for (int64_t i = 0; i < (end - first) * k; ++i)
        EXPECT_EQ(own->as<int32_t>()[i], want[at((row[at(first + i / k)] - 1000) * k + i % k)])
            << ranks << " ranks, rank " << r << ", pair " << i;
    }
    EXPECT_EQ(lost, dropped);
  }
  EXPECT_EQ(expert_capacity(1.25, 100, 2, 8), 32);
  EXPECT_EQ(expert_capacity(1.0, 7, 1, 2), 4);
}

struct Group {
  std::vector<int64_t> offsets;
  int64_t bound;
};

const std::vector<Group> kGroups = {
    {{0, 5, 5, 22, 40}, 50},         // an expert without rows, partial tiles
    {{0, 0, 0, 0, 0}, 8},            // no rows
    {{0, 0, 339, 339, 339}, 339},    // all rows for one expert
    {{0, 16, 80, 336, 1360}, 1400},  // whole tiles of each size
};

TEST(GroupedGemm, MatchesPlainLoops) {
  const int64_t in = 7, out = 11;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
    for (const Group& g : kGroups)
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(concat(dtype, " bound ", g.bound, " accumulate ", accumulate));
        const size_t experts = g.offsets.size() - 1;
        const DType sums = sum_dtype(dtype);
        const Values x = stored(dtype, normals("x", g.bound * in));
        const Values dy = stored(dtype, normals("dy", g.bound * out));
        const Values w = stored(dtype, normals("w", std::ssize(g.offsets) * out * in));
        const Values before = stored(sums, normals("dw", 4 * out * in));
        Values y(dy.size(), 0), dx(x.size(), 0),
            dw = accumulate ? before : Values(before.size(), 0);
        for (size_t e = 0; e < experts; ++e)
          for (int64_t r = g.offsets[e]; r < g.offsets[e + 1]; ++r)
            for (int64_t o = 0; o < out; ++o)
              for (int64_t i = 0; i < in; ++i) {
                const size_t k = (e * at(out) + at(o)) * at(in) + at(i);
                y[at(r * out + o)] += x[at(r * in + i)] * w[k];
                dx[at(r * in + i)] += dy[at(r * out + o)] * w[k];
                dw[k] += dy[at(r * out + o)] * x[at(r * in + i)];
              }
        const TestTensor tw(dtype, {4, out, in}, Values(w.begin(), w.begin() + 4 * out * in));
        const TestTensor tx(dtype, {g.bound, in}, x), tdy(dtype, {g.bound, out}, dy);
        TestTensor tdw(sums, {4, out, in}, before), ty(dtype, {g.bound, out});
        TestTensor tdx(dtype, {g.bound, in});
        std::vector<Tensor> weights;
        std::vector<GroupedGradient> gradients;
        for (int64_t e = 0; e < 4; ++e) {
          weights.push_back(tw->slice(0, e, e + 1).reshape({out, in}));
          gradients.push_back({tdw->slice(0, e, e + 1).reshape({out, in}), accumulate});
        }
        // Planned with unknown offsets, then run in that memory.
        Ctx ctx(2, "test");
        const auto run = [&](std::span<const int64_t> offsets) {
          grouped_linear_forward(ctx, ty, tx, weights, offsets);
          grouped_linear_backward_input(ctx, tdx, tdy, weights, offsets);
          grouped_linear_backward_weight(ctx, gradients, tdy, tx, offsets);
        };
        ctx.arena.begin_planning();
        run({});
        const ArenaPlan plan = ctx.arena.end_planning();
        ctx.arena.reserve(plan.capacity);
        ctx.arena.begin_step(plan);
        run(g.offsets);
        ctx.arena.end_step();
        EXPECT_CLOSE(ty, y, tolerance(dtype, in));
        EXPECT_CLOSE(tdx, dx, tolerance(dtype, out));
        EXPECT_WITHIN(tdw, dw, Values(dw.size(), 4 * std::sqrt(static_cast<double>(g.bound) + 1)),
                      tolerance(sums, g.bound));
        EXPECT_TRUE(ty.guards_intact() && tdx.guards_intact() && tdw.guards_intact());
      }
}

TEST(GroupedGemm, RefusesRowsOutsideItsOperands) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {4, 3}), y(DType::kF32, {4, 2}), w(DType::kF32, {2, 3});
  const std::vector<Tensor> one{*w};
  const std::vector<int64_t> beyond{0, 5}, late{1, 4}, many{0, 2, 4};
  EXPECT_THROW(grouped_linear_forward(ctx, y, x, one, beyond), Error);
  EXPECT_THROW(grouped_linear_forward(ctx, y, x, one, late), Error);
  EXPECT_THROW(grouped_linear_forward(ctx, y, x, one, many), Error);
}

TEST(Experts, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {4, 3}), rows(DType::kF32, {8, 3}), w(DType::kF32, {4, 2});
  const TestTensor e({4, 2}, Indices(8, 1)), pairs({8}, Indices(8)), places({4, 2}, Indices(8));
  const TestTensor counts({3}, std::vector<int64_t>{5, 5, 5}), row({4}, std::vector<int64_t>(4));
  const TestTensor lost({1}, std::vector<int64_t>{3}), gate(DType::kF32, {4});
  expect_plannable(
      [&](Ctx& ctx) {
        drop_over_capacity(ctx, e, lost, e, row, 0, 3, 1);
        order_by_expert(ctx, pairs, places, counts, e);
        gather_rows(ctx, rows, x, pairs, 2);
        combine_rows(ctx, x, rows, places, w);
        combine_rows_backward(ctx, rows, w, x, rows, places, w);
        scale_rows(ctx, x, x, gate, true);
        dot_rows(ctx, gate, x, x);
      },
      {&x, &rows, &w, &e, &pairs, &places, &counts, &lost, &gate});
}

TEST(Experts, BiasesAreThoseOfTheRowsExperts) {
  const std::vector<int64_t> offsets = {0, 3, 3, 20};
  const int64_t rows = 22, c = 17;
  for (const DType dtype : kFloatTypes) {
    SCOPED_TRACE(concat(dtype));
    const DType sums = sum_dtype(dtype);
    const Values y = stored(dtype, normals("y", rows * c)), b = stored(dtype, normals("b", 3 * c));
    Values want = y, want_db(b.size(), 0.0), size(b.size(), 1e-30);
    for (int64_t r = 0; r < offsets.back(); ++r)
      for (int64_t i = 0; i < c; ++i) {
        const size_t of_expert = at((r < 3 ? 0 : 2) * c + i);
        want[at(r * c + i)] += b[of_expert];
        want_db[of_expert] += y[at(r * c + i)];
        size[of_expert] += std::abs(y[at(r * c + i)]);
      }
    const TestTensor biases(dtype, {3, c}, b), dy(dtype, {rows, c}, y);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor out(dtype, {rows, c}, y), db(sums, {3, c}, Values(b.size(), 9.0));
      std::vector<Tensor> each;
      std::vector<GroupedBiasGradient> gradients;
      for (int64_t e = 0; e < 3; ++e) {
        each.push_back(biases->slice(0, e, e + 1).reshape({c}));
        gradients.push_back({db->slice(0, e, e + 1).reshape({c}), false});
      }
      grouped_bias_forward(ctx, out, each, offsets);
      grouped_bias_backward(ctx, gradients, dy, offsets);
      EXPECT_CLOSE(out, want, tolerance(dtype));
      EXPECT_WITHIN(db, want_db, size, tolerance(sums, rows));
      return outputs(out, db);
    });
  }
}

TEST(Experts, GradientOfABiasWithoutRowsIsZeroOrUnchanged) {
  Ctx ctx(1, "test");
  const TestTensor dy(DType::kF64, {2, 2}, {1, 2, 3, 4}), db(DType::kF64, {2, 2}, {5, 6, 7, 8});
  const std::vector<int64_t> offsets = {0, 0, 2};
  const auto rows = [&](int64_t e) { return db->slice(0, e, e + 1).reshape({2}); };
  grouped_bias_backward(ctx, std::vector<GroupedBiasGradient>{{rows(0), true}, {rows(1), true}}, dy,
                        offsets);
  EXPECT_EQ(to_doubles(*db), (Values{5, 6, 11, 14}));
  grouped_bias_backward(ctx, std::vector<GroupedBiasGradient>{{rows(0), false}, {rows(1), false}},
                        dy, offsets);
  EXPECT_EQ(to_doubles(*db), (Values{0, 0, 4, 6}));
}

}  // namespace
}  // namespace trireme::test::test_experts
