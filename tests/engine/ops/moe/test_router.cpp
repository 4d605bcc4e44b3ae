#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/normal_number.h"
#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/moe/router_loss.h"
#include "engine/ops/moe/router_noise.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_router {
namespace {

using Values = std::vector<double>;
using Indices = std::vector<int32_t>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

TestTensor bytes(const std::vector<int>& values) {
  TestTensor t(DType::kU8, {std::ssize(values)});
  for (size_t i = 0; i < values.size(); ++i) t->as<uint8_t>()[i] = static_cast<uint8_t>(values[i]);
  return t;
}

struct Reference {
  Values scores, weights;
  Indices experts;
};

// By definition, with sorting.
Reference plain(const Values& logits, const Values& bias, int64_t count, int64_t k,
                const RouterArgs& args) {
  Reference out;
  const bool sigmoid = args.score == RouterScore::kSigmoid;
  const int64_t width = count / args.groups;
  for (int64_t row = 0; row < std::ssize(logits) / count; ++row) {
    Values s(at(count));
    double total = 0;
    for (int64_t e = 0; e < count; ++e) {
      const double x = logits[at(row * count + e)];
      s[at(e)] = sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x);
      total += s[at(e)];
    }
    for (double& v : s) v /= sigmoid ? 1 : total;
    Values choice = s;
    for (size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
    std::vector<int64_t> groups(at(args.groups));
    Values group_score;
    for (int64_t g = 0; g < args.groups; ++g) {
      Values in(choice.begin() + g * width, choice.begin() + (g + 1) * width);
      std::ranges::sort(in, std::greater<>());
      group_score.push_back(in[0] + (sigmoid && width > 1 ? in[1] : 0));
    }
    std::iota(groups.begin(), groups.end(), 0);
    std::ranges::stable_sort(groups, std::greater<>(),
                             [&](int64_t g) { return group_score[at(g)]; });
    Indices eligible;
    for (int64_t g = 0; g < args.kept_groups; ++g)
      for (int64_t e = 0; e < width; ++e)
        eligible.push_back(static_cast<int32_t>(groups[at(g)] * width + e));
    std::ranges::sort(eligible);
    std::ranges::stable_sort(eligible, std::greater<>(), [&](int32_t e) { return choice[at(e)]; });
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += s[at(eligible[at(j)])];
    for (int64_t j = 0; j < k; ++j) {
      out.experts.push_back(eligible[at(j)]);
      out.weights.push_back(args.scale * s[at(eligible[at(j)])] / (args.normalize ? sum : 1));
    }
    out.scores.insert(out.scores.end(), s.begin(), s.end());
  }
  return out;
}

struct Kind {
  const char* name;
  int64_t count, k;
  bool bias;
  RouterArgs args;
};

const std::vector<Kind> kKinds = {
    {"mixtral", 8, 2, false, {}},
    {"qwen", 60, 4, false, {.normalize = false}},
    {"one", 1, 1, false, {}},
    {"all", 7, 7, false, {.scale = 0.5}},
    {"deepseek2", 24, 3, false, {.normalize = false, .scale = 16, .groups = 6, .kept_groups = 2}},
    {"deepseek3", 32, 4, true, {RouterScore::kSigmoid, true, 2.5, 8, 3}},
    {"sigmoid", 33, 5, true, {RouterScore::kSigmoid, false, 1.0, 1, 1}},
    {"llama4",
     16,
     2,
     false,
     {.score = RouterScore::kSigmoid, .normalize = false, .choose_by_logits = true}},
    {"biased", 16, 2, true, {.score = RouterScore::kSigmoid, .choose_by_logits = true}},
};

// Sigmoids of large logits are all 1, in float32 from about 17 on.
TEST(Router, ChoosesByLogitsWhereScoresAreEqual) {
  for (const bool by_logits : {false, true}) {
    const TestTensor logits(DType::kF32, {1, 4}, {20, 30, 25, -1});
    TestTensor scores(DType::kF32, {1, 4}), weights(DType::kF32, {1, 2}),
        experts(DType::kI32, {1, 2});
    Ctx ctx(1, "test");
    router_forward(
        ctx, scores, experts, weights, logits, {}, {},
        {.score = RouterScore::kSigmoid, .normalize = false, .choose_by_logits = by_logits});
    const auto* chosen = experts->as<int32_t>();
    EXPECT_EQ(chosen[0], by_logits ? 1 : 0);
    EXPECT_EQ(chosen[1], by_logits ? 2 : 1);
  }
}

TEST(Router, ChoosesAndWeighsAsDefined) {
  const int64_t rows = 37;
  for (const Kind& kind : kKinds)
    for (DType dtype : {DType::kF64, DType::kF32}) {
      SCOPED_TRACE(concat(kind.name, " ", dtype));
      const Values logits = stored(dtype, normals("logits", rows * kind.count, 2.0));
      const Values bias = kind.bias ? stored(dtype, normals("bias", kind.count, 0.2)) : Values();
      const Reference want = plain(logits, bias, kind.count, kind.k, kind.args);
      const TestTensor tx(dtype, {rows, kind.count}, logits);
      const TestTensor tb(dtype, {std::ssize(bias)}, bias);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor s(dtype, {rows, kind.count}), w(dtype, {rows, kind.k});
        TestTensor e({rows, kind.k}, Indices(at(rows * kind.k), -7));
        router_forward(ctx, s, e, w, tx, kind.bias ? *tb : Tensor(), {}, kind.args);
        EXPECT_CLOSE(s, want.scores, tolerance(dtype, kind.count));
        EXPECT_SAME_BITS(*e, *TestTensor({rows, kind.k}, want.experts));
        EXPECT_CLOSE(w, want.weights, tolerance(dtype, kind.count));
        return outputs(s, w, e);
      });
    }
}

TEST(Router, EqualScoresGoToTheLowerIndex) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 6}, {0, 1, 1, 0, 1, 0, 3, 3, 3, 3, 3, 3});
  const TestTensor s(DType::kF32, {2, 6}), w(DType::kF32, {2, 2}), e({2, 2}, Indices(4));
  router_forward(ctx, s, e, w, x, {}, {}, {});
  EXPECT_SAME_BITS(*e, *TestTensor({2, 2}, Indices{1, 2, 0, 1}));
  // Equal groups: the first two of three are kept.
  router_forward(ctx, s, e, w, x, {}, {}, {.groups = 3, .kept_groups = 2});
  EXPECT_SAME_BITS(*e, *TestTensor({2, 2}, Indices{1, 2, 0, 1}));
}

TEST(Router, PaddingGoesNowhereAndNanStaysInItsRow) {
  Ctx ctx(1, "test");
  const double nan = std::nan("");
  const TestTensor x(DType::kF32, {3, 4}, {1, 2, 3, 4, 1, nan, 3, 4, 4, 3, 2, 1});
  const TestTensor s(DType::kF32, {3, 4}), w(DType::kF32, {3, 2}), e({3, 2}, Indices(6));
  router_forward(ctx, s, e, w, x, {}, bytes({0, 1, 1}), {});
  const auto* chosen = e->as<int32_t>();
  const Values weights = to_doubles(*w);
  EXPECT_EQ(chosen[0], -1);
  EXPECT_EQ(chosen[1], -1);
  EXPECT_EQ(weights[0], 0.0);
  EXPECT_EQ(chosen[2], 0);
  EXPECT_EQ(chosen[3], 1);
  EXPECT_TRUE(std::isnan(weights[2]));
  EXPECT_EQ(chosen[4], 0);
  EXPECT_TRUE(std::isfinite(weights[4]));
}

TEST(Router, InfiniteBiasesChooseExperts) {
  Ctx ctx(1, "test");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const TestTensor x(DType::kF32, {1, 6}, {0, 0, 0, 0, 0, 0});
  const TestTensor bias(DType::kF32, {6}, {kInfinity, -kInfinity, kInfinity, -kInfinity, 0, 1});
  const TestTensor s(DType::kF32, {1, 6}), w(DType::kF32, {1, 2}), e({1, 2}, Indices(2));
  router_forward(ctx, s, e, w, x, bias, {},
                 {.score = RouterScore::kSigmoid, .groups = 3, .kept_groups = 2});
  // The third group is the only one with a sum, and the first one is the next.
  EXPECT_SAME_BITS(*e, *TestTensor({1, 2}, Indices{0, 5}));
}

// Weights and all losses as a function of the logits, whose gradient backward computes.
struct Problem {
  Kind kind;
  int64_t rows = 9, segments = 2;
  TestTensor bias, valid, segment, targets, scale;
  RouterLossArgs losses{.k = 1, .balance = 0.7, .z = 0.3, .importance = 0.4};

  explicit Problem(const Kind& k)
      : kind(k),
        bias(DType::kF64, {k.count}, normals("bias", k.count, 0.001)),
        valid(bytes({1, 1, 1, 0, 1, 1, 1, 1, 0})),
        segment({rows}, Indices{0, 0, 0, 0, 0, 1, 1, 1, 1}),
        targets({rows}, Indices{1, 2, kIgnoredTarget, kIgnoredTarget, 3, 3, 3, 3, kIgnoredTarget}),
        scale(DType::kF64, {1}, {0.25}) {
    losses.k = k.k;
  }

  struct Made {
    TestTensor s, e, w, sums, values, dp, di, dl, dz;
  };
  Made forward(Ctx& ctx, const Values& logits) const {
    Made m{TestTensor(DType::kF64, {rows, kind.count}),
           TestTensor({rows, kind.k}, Indices(at(rows * kind.k))),
           TestTensor(DType::kF64, {rows, kind.k}),
           TestTensor(DType::kF64, {RouterSums::size(segments, kind.count)}),
           TestTensor(DType::kF64, {4}),
           TestTensor(DType::kF64, {segments, kind.count}),
           TestTensor(DType::kF64, {kind.count}),
           TestTensor(DType::kF64, {kind.count}),
           TestTensor(DType::kF64, {1})};
    const TestTensor x(DType::kF64, {rows, kind.count}, logits);
    router_forward(ctx, m.s, m.e, m.w, x, kind.bias ? *bias : Tensor(), valid, kind.args);
    const RouterSums sums(m.sums, segments, kind.count);
    router_statistics(ctx, sums, m.s, x, m.e, m.w, {*segment, *targets});
    router_losses(ctx, m.values, {m.dp, m.di, m.dl, m.dz}, sums, scale, losses);
    return m;
  }
};

// Logits of each row a tenth apart, in some order, plus noise: a small step changes no choice.
Values spaced_logits(int64_t rows, int64_t count) {
  Values x = normals("x", rows * count, 0.01);
  for (int64_t t = 0; t < rows; ++t) {
    const Values key = normals(concat("order ", t), count);
    for (int64_t e = 0; e < count; ++e)
      for (int64_t i = 0; i < count; ++i)
        x[at(t * count + e)] += key[at(i)] < key[at(e)] ? 0.1 : 0.0;
    for (int64_t e = 0; e < count; ++e) x[at(t * count + e)] -= 0.05 * static_cast<double>(count);
  }
  return x;
}

TEST(Router, GradientsOfWeightsAndLossesMatchFiniteDifferences) {
  Ctx ctx(1, "test");
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const Problem p(kind);
    const int64_t n = p.rows * kind.count;
    const Values x = spaced_logits(p.rows, kind.count), dw = normals("dw", p.rows * kind.k);
    const auto f = [&](const Values& logits) {
      const Problem::Made m = p.forward(ctx, logits);
      Values out = to_doubles(*m.w);
      for (double v : to_doubles(*m.values)) out.push_back(v);
      return out;
    };
    Values d_out = dw;
    d_out.insert(d_out.end(), 4, 0.25);  // the scale
    const Problem::Made m = p.forward(ctx, x);
    const TestTensor d(DType::kF64, {p.rows, kind.count}, normals("garbage", n));
    router_backward(ctx, d, TestTensor(DType::kF64, {p.rows, kind.k}, dw), m.s,
                    TestTensor(DType::kF64, {p.rows, kind.count}, x), m.e,
                    {*m.dp, *p.segment, *m.di, *m.dz}, kind.args);
    EXPECT_LT(worst_relative(to_doubles(*d), finite_difference_gradient(f, x, d_out)),
              finite_difference_tolerance());
  }
}

TEST(Router, BackwardAgreesInAllTypesAndThreads) {
  const Kind& kind = kKinds[5];
  const int64_t rows = 37;
  const Values x = stored(DType::kF32, normals("x", rows * kind.count, 2.0));
  const Values dw = stored(DType::kF32, normals("dw", rows * kind.k));
  Values want;
  for (DType dtype : {DType::kF64, DType::kF32})
    for_each_kernel([&](Ctx& ctx) {
      const TestTensor tx(dtype, {rows, kind.count}, x), tw(dtype, {rows, kind.k}, dw);
      TestTensor s(dtype, {rows, kind.count}), w(dtype, {rows, kind.k}), d(dtype, s->shape());
      TestTensor e({rows, kind.k}, Indices(at(rows * kind.k)));
      router_forward(ctx, s, e, w, tx, {}, {}, kind.args);
      router_backward(ctx, d, tw, s, tx, e, {}, kind.args);
      if (want.empty()) want = to_doubles(*d);
      // dw_j / S - dot / S^2 has cancellation.
      EXPECT_WITHIN(d, want, Values(want.size(), 4 * kind.args.scale),
                    tolerance(dtype, kind.count));
      return outputs(d);
    });
}

TEST(RouterLoss, IsAlphaWhereEveryExpertGetsItsShare) {
  Ctx ctx(1, "test");
  const int64_t rows = 8, count = 4;
  TestTensor s(DType::kF64, {rows, count}, Values(at(rows * count), 0.25));
  const TestTensor x(DType::kF64, {rows, count}), w(DType::kF64, {rows, 1}, Values(at(rows), 1.0));
  const TestTensor e({rows, 1}, Indices{0, 1, 2, 3, 3, 2, 1, 0});
  const TestTensor targets({rows}, Indices{5, 5, 5, kIgnoredTarget, 5, 5, 5, 5});
  const TestTensor flat(DType::kF64, {RouterSums::size(1, count)}), values(DType::kF64, {4});
  const TestTensor dp(DType::kF64, {1, count}), di(DType::kF64, {count}), dl(DType::kF64, {count});
  const TestTensor dz(DType::kF64, {1}), scale(DType::kF64, {1}, {0.5});
  const RouterSums sums(flat, 1, count);
  router_statistics(ctx, sums, s, x, e, w, {{}, *targets});
  EXPECT_EQ(to_doubles(sums.counts), Values(4, 2.0));
  EXPECT_EQ(to_doubles(sums.importance), Values(4, 2.0));
  EXPECT_EQ(*sums.loss_tokens.as<double>(), 7.0);
  router_losses(ctx, values, {dp, di, dl, dz}, sums, scale,
                {.k = 1, .balance = 0.01, .z = 0.1, .importance = 1});
  const Values got = to_doubles(*values);
  EXPECT_DOUBLE_EQ(got[0], 7 * 0.01);
  EXPECT_DOUBLE_EQ(got[1], 7 * 0.1 * std::log(4.0) * std::log(4.0));
  EXPECT_EQ(got[2], 0.0);
  // d value / d sum of q = alpha E f / n, times loss tokens and scale
  EXPECT_DOUBLE_EQ(to_doubles(*dp)[1], 0.01 * 4 * 0.25 / 8 * 7 * 0.5);
  // Shares of the previous step replace f.
  const TestTensor shares(DType::kF64, {count}, {1, 0, 0, 0});
  router_losses(ctx, values, {dp, di, dl, dz}, sums, scale,
                {.k = 1, .balance = 0.01, .shares = *shares});
  EXPECT_DOUBLE_EQ(to_doubles(*dp)[0], 0.01 * 4 / 8 * 7 * 0.5);
  EXPECT_EQ(to_doubles(*dp)[1], 0.0);
}

// The sums of two ranks' tokens equal the sums of all tokens.
TEST(RouterLoss, SumsOfPartsAreTheSumOfAll) {
  Ctx ctx(2, "test");
  const Problem p(kKinds[5]);
  const Values x = normals("x", p.rows * p.kind.count);
  const Problem::Made all = p.forward(ctx, x);
  Values sum(at(all.sums->numel()), 0.0);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 4}, {4, 9}}) {
    const TestTensor part(DType::kF64, all.sums->shape());
    const TestTensor logits(DType::kF64, {p.rows, p.kind.count}, x);
    router_statistics(ctx, RouterSums(part, p.segments, p.kind.count), all.s->slice(0, begin, end),
                      logits->slice(0, begin, end), all.e->slice(0, begin, end),
                      all.w->slice(0, begin, end),
                      {p.segment->slice(0, begin, end), p.targets->slice(0, begin, end)});
    const Values v = to_doubles(*part);
    for (size_t i = 0; i < v.size(); ++i) sum[i] += v[i];
  }
  EXPECT_CLOSE(*all.sums, sum, tolerance(DType::kF64, p.rows));
}

TEST(RouterNoise, GradientsMatchFiniteDifferences) {
  Ctx ctx(1, "test");
  const int64_t rows = 5, count = 6;
  const Shape shape{rows, count};
  const RandomKey key{3, stream_id("noise")};
  const TestTensor row({rows}, std::vector<int64_t>{7, 3, 100, 0, 12});
  const TestTensor valid = bytes({1, 1, 0, 1, 1});
  const Values dh = normals("dh", rows * count), dload = normals("dload", count);
  for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{6}}) {
    SCOPED_TRACE(k);
    const auto f = [&](const Values& l, const Values& r) {
      const TestTensor noisy(DType::kF64, shape), noise(DType::kF64, shape);
      const TestTensor load(DType::kF64, {count}), tl(DType::kF64, shape, l);
      const TestTensor tr(DType::kF64, shape, r);
      noisy_logits(ctx, noisy, noise, tl, tr, row, key);
      noisy_load(ctx, load, noisy, tl, tr, valid, k);
      Values out = to_doubles(*noisy);
      for (double v : to_doubles(*load)) out.push_back(v);
      return out;
    };
    const Values l = normals("l", rows * count), r = normals("r", rows * count);
    Values d_out = dh;
    d_out.insert(d_out.end(), dload.begin(), dload.end());
    const TestTensor noisy(DType::kF64, shape), noise(DType::kF64, shape);
    const TestTensor tl(DType::kF64, shape, l), tr(DType::kF64, shape, r);
    noisy_logits(ctx, noisy, noise, tl, tr, row, key);
    const TestTensor dl(DType::kF64, shape, dh), dr(DType::kF64, shape);
    noisy_backward(ctx, dl, dr, noise, noisy, tl, tr, TestTensor(DType::kF64, {count}, dload),
                   valid, k);
    const auto by_l = [&](const Values& v) { return f(v, r); };
    const auto by_r = [&](const Values& v) { return f(l, v); };
    // Phi has a larger curvature where sigma is small: use a smaller step.
    EXPECT_LT(worst_relative(to_doubles(*dl), finite_difference_gradient(by_l, l, d_out, 3e-4)),
              1e-8);
    EXPECT_LT(worst_relative(to_doubles(*dr), finite_difference_gradient(by_r, r, d_out, 3e-4)),
              1e-8);
  }
}

TEST(RouterNoise, IsThatOfTheGlobalRow) {
  Ctx ctx(2, "test");
  const Shape shape{3, 4};
  const TestTensor l(DType::kF32, shape), r(DType::kF32, shape), noisy(DType::kF32, shape);
  const TestTensor noise(DType::kF32, shape);
  const RandomKey key{1, 2};
  noisy_logits(ctx, noisy, noise, l, r, TestTensor({3}, std::vector<int64_t>{5, 9, 5}), key);
  const Values z = to_doubles(*noise);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(z[i], z[8 + i]);
    EXPECT_EQ(z[4 + i], static_cast<double>(static_cast<float>(philox_normal(key, 36 + i))));
  }
  EXPECT_NE(z[0], z[4]);
}

// All experts are equally likely where everything is equal; the sum of the loads is about k T.
TEST(RouterNoise, LoadOfEqualExpertsIsEven) {
  Ctx ctx(2, "test");
  const int64_t rows = 4000, count = 4, k = 2;
  const Shape shape{rows, count};
  std::vector<int64_t> row(at(rows));
  std::iota(row.begin(), row.end(), 0);
  const TestTensor l(DType::kF64, shape), r(DType::kF64, shape), noisy(DType::kF64, shape);
  const TestTensor noise(DType::kF64, shape), load(DType::kF64, {count});
  noisy_logits(ctx, noisy, noise, l, r, TestTensor({rows}, row), {1, 2});
  noisy_load(ctx, load, noisy, l, r, {}, k);
  for (double v : to_doubles(*load)) EXPECT_NEAR(v, 2000, 6 * std::sqrt(4000 * 0.25));
}

TEST(Router, PlansItsScratchAndWritesNothing) {
  const Problem p(kKinds[0]);
  const int64_t count = 8, k = 2;
  const TestTensor x(DType::kF64, {p.rows, count}), s = TestTensor(DType::kF64, {p.rows, count});
  const TestTensor e({p.rows, k}, Indices(at(p.rows * k), 3)), w(DType::kF64, {p.rows, k});
  const TestTensor flat(DType::kF64, {RouterSums::size(2, count)}), values(DType::kF64, {4});
  const TestTensor dp(DType::kF64, {2, count}), di(DType::kF64, {count}), dl(DType::kF64, {count});
  const TestTensor dz(DType::kF64, {1}), scale(DType::kF64, {1}, {0.5}), d(DType::kF64, s->shape());
  const TestTensor rows({p.rows}, std::vector<int64_t>(at(p.rows), 0));
  expect_plannable(
      [&](Ctx& ctx) {
        const RouterSums sums(flat, 2, count);
        router_forward(ctx, s, e, w, x, {}, p.valid, {});
        router_statistics(ctx, sums, s, x, e, w, {*p.segment, *p.targets});
        router_losses(ctx, values, {dp, di, dl, dz}, sums, scale, {});
        router_backward(ctx, d, w, s, x, e, {*dp, *p.segment, *di, *dz}, {});
        noisy_logits(ctx, s, d, x, x, rows, {});
        noisy_load(ctx, di, s, x, x, p.valid, 2);
        noisy_backward(ctx, d, s, x, x, x, x, di, p.valid, 2);
      },
      {&s, &e, &w, &flat, &values, &dp, &di, &dl, &dz, &d});
}

TEST(Router, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 6}), s(DType::kF32, {2, 6}), w(DType::kF32, {2, 2});
  const TestTensor e({2, 2}, Indices(4)), half(DType::kBF16, {2, 6});
  EXPECT_THROW(router_forward(ctx, s, e, w, half, {}, {}, {}), Error);
  EXPECT_THROW(router_forward(ctx, s, e, w, x, {}, {}, {.groups = 4, .kept_groups = 2}), Error);
  EXPECT_THROW(router_forward(ctx, s, e, w, x, {}, {}, {.groups = 6, .kept_groups = 1}), Error);
  EXPECT_THROW(router_forward(ctx, s, e, w, x, s, {}, {}), Error);
}

}  // namespace
}  // namespace trireme::test::test_router
