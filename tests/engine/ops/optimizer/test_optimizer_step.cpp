#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/ops/optimizer/optimizer_step.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_optimizer_step {
namespace {

using Values = std::vector<double>;

constexpr double kBf16Step = 0x1p-7;  // between neighbours in [1, 2)

TestTensor scalars_tensor(const StepScalars& s) {
  TestTensor t(DType::kU8, {kStepScalarsBytes});
  std::memcpy(t->raw(), &s, sizeof s);
  return t;
}

// Operands of an update, in the types of one configuration.
struct Config {
  DType param, state;
  bool master;
};

const std::vector<Config> kConfigs = {
    {DType::kF64, DType::kF64, false},   {DType::kF32, DType::kF32, false},
    {DType::kF32, DType::kBF16, false},  {DType::kBF16, DType::kF32, true},
    {DType::kBF16, DType::kBF16, true},  {DType::kBF16, DType::kF32, false},
    {DType::kBF16, DType::kBF16, false}, {DType::kF16, DType::kF32, true},
    {DType::kF16, DType::kBF16, true},   {DType::kF16, DType::kF32, false},
};

std::string text_of(const Config& c) {
  return concat(c.param, ", state ", c.state, c.master ? ", master" : "");
}

// Stochastic rounding moves a value by less than one step: eps of bf16 instead of half of it.
Tolerance stored_tolerance(DType dtype) {
  return {tolerance(dtype).relative + (dtype == DType::kBF16 ? dtype_eps(dtype) : 0.0)};
}

struct Operands {
  Operands(const Config& c, int64_t n)
      : p(c.param, {n}, normals("p", n)),
        master(DType::kF32, {n}, to_doubles(*p)),
        m(c.state, {n}, normals("m", n, 0.1)),
        v(c.state, {n}, squares(normals("v", n))) {}
  static Values squares(Values x) {
    for (double& value : x) value *= value;
    return x;
  }
  Tensor master_of(const Config& c) const { return c.master ? *master : Tensor(); }
  TestTensor p, master, m, v;
};

struct Expected {
  Values p, m, v, p_magnitude, m_magnitude;
};

// The formulas of the header, in float64.
Expected plain_adamw(const Operands& o, const Values& grad, const StepScalars& s,
                     const AdamWArgs& a) {
  Expected e{to_doubles(*o.p), to_doubles(*o.m), to_doubles(*o.v), {}, {}};
  const double lr = s.learning_rate * a.lr_multiplier, count = static_cast<double>(s.count);
  const bool frozen = a.frozen_after > 0;
  const double count2 = frozen ? static_cast<double>(a.frozen_after) : count;
  for (size_t i = 0; i < grad.size(); ++i) {
    double &p = e.p[i], &m = e.m[i], &v = e.v[i];
    double g = grad[i] * s.grad_multiplier;
    if (!a.decoupled) g += a.weight_decay * p;
    e.m_magnitude.push_back(std::abs(a.beta1 * m) + std::abs((1 - a.beta1) * g));
    m = a.beta1 * m + (1 - a.beta1) * g;
    if (!frozen) v = a.beta2 * v + (1 - a.beta2) * g * g;
    double change = m / (1 - std::pow(a.beta1, count)) /
                    (std::sqrt(v / (1 - std::pow(a.beta2, count2))) + a.eps);
    if (a.decoupled) change += a.weight_decay * p;
    // m may cancel, and its error is divided by sqrt(v) like m itself.
    const double m_scale = std::abs(m) > 0 ? e.m_magnitude.back() / std::abs(m) : 1.0;
    e.p_magnitude.push_back(std::abs(p) + lr * std::abs(change) * m_scale);
    p -= lr * change;
  }
  return e;
}

void check_adamw(const Config& c, int64_t n, const StepScalars& s, const AdamWArgs& args) {
  SCOPED_TRACE(concat(text_of(c), " n ", n, " count ", s.count));
  const Values grad = stored(sum_dtype(c.param), normals("grad", n));
  const TestTensor tg(sum_dtype(c.param), {n}, grad), ts = scalars_tensor(s);
  const Expected want = plain_adamw(Operands(c, n), grad, s, args);
  for_each_kernel([&](Ctx& ctx) {
    Operands o(c, n);
    adamw_step(ctx, o.p, o.master_of(c), tg, o.m, o.v, ts, args);
    EXPECT_WITHIN(o.m, want.m, want.m_magnitude, stored_tolerance(c.state));
    EXPECT_EACH_CLOSE(o.v, want.v, stored_tolerance(c.state));
    EXPECT_WITHIN(o.p, want.p, want.p_magnitude, stored_tolerance(c.param));
    if (c.master) {
      EXPECT_WITHIN(o.master, want.p, want.p_magnitude, tolerance(DType::kF32));
      EXPECT_EQ(to_doubles(*o.p), stored(c.param, to_doubles(*o.master)));
    }
    return outputs(o.p, o.m, o.v, o.master);
  });
}

TEST(AdamW, MatchesTheFormula) {
  const AdamWArgs decoupled{.beta2 = 0.95, .weight_decay = 0.1, .lr_multiplier = 0.5};
  AdamWArgs coupled = decoupled, frozen = decoupled;
  coupled.decoupled = false;
  frozen.frozen_after = 3;
  for (const Config& c : kConfigs)
    for (int64_t n : kOddSizes) {
      check_adamw(c, n, {.grad_multiplier = 0.25, .learning_rate = 0.01, .count = 1}, decoupled);
      check_adamw(c, n, {.grad_multiplier = 3.0, .learning_rate = 0.1, .count = 7}, coupled);
      check_adamw(c, n, {.grad_multiplier = 0.25, .learning_rate = 0.1, .count = 9}, frozen);
    }
}

TEST(AdamW, UsesSeveralThreadsAlike) {
  const StepScalars s{.learning_rate = 0.01, .count = 100'000};
  check_adamw({DType::kBF16, DType::kBF16, false}, 50'001, s, {.beta2 = 0.9999});
  check_adamw({DType::kF32, DType::kF32, false}, 50'001, s, {.beta2 = 0.9999});
}

TEST(AdamW, ZeroGradientsLeavePaddingZero) {
  const TestTensor ts = scalars_tensor({.learning_rate = 0.1});
  for (const Config& c : kConfigs)
    for_each_kernel([&](Ctx& ctx) {
      TestTensor p(c.param, {33}), master(DType::kF32, {33}), m(c.state, {33}), v(c.state, {33});
      const TestTensor grad(sum_dtype(c.param), {33});
      adamw_step(ctx, p, c.master ? *master : Tensor(), grad, m, v, ts, {.weight_decay = 0.1});
      EXPECT_EQ(to_doubles(*p), Values(33, 0.0));
      EXPECT_EQ(to_doubles(*m), Values(33, 0.0));
      EXPECT_EQ(to_doubles(*v), Values(33, 0.0));
      return outputs(p);
    });
}

TEST(AdamW, SkipLeavesEverything) {
  const TestTensor ts = scalars_tensor({.learning_rate = 0.1, .skip = 1});
  for (const Config& c : kConfigs) {
    const TestTensor grad(sum_dtype(c.param), {33}, Values(33, std::nan("")));
    const Operands before(c, 33);
    for_each_kernel([&](Ctx& ctx) {
      Operands o(c, 33);
      adamw_step(ctx, o.p, o.master_of(c), grad, o.m, o.v, ts, {});
      sgd_step(ctx, o.p, o.master_of(c), grad, o.m, ts, {.momentum = 0.9});
      lion_step(ctx, o.p, o.master_of(c), grad, o.m, ts, {});
      EXPECT_SAME_BITS(*o.p, *before.p);
      EXPECT_SAME_BITS(*o.m, *before.m);
      EXPECT_SAME_BITS(*o.v, *before.v);
      EXPECT_SAME_BITS(*o.master, *before.master);
      return outputs(o.p);
    });
  }
}

// Parts of a range, each keyed by its first element, give the same bits as the whole.
TEST(AdamW, PartsOfARangeGiveTheSameBits) {
  const Config c{DType::kBF16, DType::kBF16, false};
  const int64_t n = 1000;
  const TestTensor grad(DType::kF32, {n}, normals("grad", n)),
      ts = scalars_tensor({.learning_rate = 0.01, .count = 3});
  const AdamWArgs args{.rounding = {1, 2}, .index = {.first = 12'345}};
  for_each_kernel([&](Ctx& ctx) {
    Operands whole(c, n), parts(c, n);
    adamw_step(ctx, whole.p, {}, grad, whole.m, whole.v, ts, args);
    for (int64_t begin = 0; begin < n; begin += 7) {
      const int64_t end = std::min(n, begin + 7);
      AdamWArgs part = args;
      part.index.offset += begin;
      const auto cut = [&](const TestTensor& t) { return t->slice(0, begin, end); };
      adamw_step(ctx, cut(parts.p), {}, cut(grad), cut(parts.m), cut(parts.v), ts, part);
    }
    EXPECT_SAME_BITS(*parts.p, *whole.p);
    EXPECT_SAME_BITS(*parts.m, *whole.m);
    EXPECT_SAME_BITS(*parts.v, *whole.v);
    return outputs(whole.p, whole.m, whole.v);
  });
}

TEST(AdamW, ASecondMomentInBf16Decays) {
  // 1 - beta2 is a quarter of bf16's half step: rounded to nearest, v would stay at 1 forever.
  const int64_t n = 1000, steps = 1500;
  const double beta2 = 0.999;
  Ctx ctx(1, "test");
  const TestTensor p(DType::kF32, {n}), grad(DType::kF32, {n}), m(DType::kBF16, {n});
  const TestTensor v(DType::kBF16, {n}, Values(static_cast<size_t>(n), 1.0));
  for (int64_t step = 1; step <= steps; ++step)
    adamw_step(ctx, p, {}, grad, m, v, scalars_tensor({.learning_rate = 0.0, .count = step}),
               {.beta2 = beta2});
  double mean = 0;
  for (double x : to_doubles(*v)) mean += x / static_cast<double>(n);
  const double want = std::pow(beta2, static_cast<double>(steps));
  // Each step's rounding has a variance of at most step (1 - beta2) v^2, with a step of at most
  // 2^-7; the errors then decay with v. Relative to the result: sqrt(steps 2^-7 (1 - beta2)).
  const double sigma = want * std::sqrt(static_cast<double>(steps) * kBf16Step * (1 - beta2) /
                                        static_cast<double>(n));
  EXPECT_NEAR(mean, want, 5 * sigma);
}

Values plain_sgd(const Operands& o, Values& m, const Values& grad, const StepScalars& s,
                 const SgdArgs& a) {
  Values p = to_doubles(*o.p);
  for (size_t i = 0; i < p.size(); ++i) {
    const double d = grad[i] * s.grad_multiplier + a.weight_decay * p[i];
    m[i] = s.count == 1 ? d : a.momentum * m[i] + d;
    const double change = a.momentum == 0 ? d : a.nesterov ? d + a.momentum * m[i] : m[i];
    p[i] -= s.learning_rate * a.lr_multiplier * change;
  }
  return p;
}

TEST(Sgd, MatchesTheFormula) {
  const std::vector<SgdArgs> variants = {
      {.weight_decay = 0.1},
      {.momentum = 0.9, .weight_decay = 0.1, .lr_multiplier = 0.5},
      {.momentum = 0.9, .nesterov = true},
  };
  for (const Config& c : kConfigs)
    for (int64_t n : kOddSizes)
      for (size_t k = 0; k < variants.size(); ++k)
        for (int64_t count : {1, 2}) {
          SCOPED_TRACE(concat(text_of(c), " n ", n, " variant ", k, " count ", count));
          const StepScalars s{.grad_multiplier = 0.5, .learning_rate = 0.1, .count = count};
          const Values grad = stored(sum_dtype(c.param), normals("grad", n));
          const TestTensor tg(sum_dtype(c.param), {n}, grad), ts = scalars_tensor(s);
          const Operands start(c, n);
          Values m = to_doubles(*start.m);
          const Values p = plain_sgd(start, m, grad, s, variants[k]);
          const Values magnitude(p.size(), 8.0);  // sums of a few values of the order of one
          for_each_kernel([&](Ctx& ctx) {
            Operands o(c, n);
            const bool has_m = variants[k].momentum != 0;
            sgd_step(ctx, o.p, o.master_of(c), tg, has_m ? *o.m : Tensor(), ts, variants[k]);
            EXPECT_WITHIN(o.p, p, magnitude, stored_tolerance(c.param));
            if (has_m) {
              EXPECT_WITHIN(o.m, m, magnitude, stored_tolerance(c.state));
            }
            return outputs(o.p, o.m, o.master);
          });
        }
}

TEST(Sgd, TheFirstUpdateDoesNotReadTheMomentum) {
  const TestTensor grad(DType::kF32, {33}, Values(33, 1.0)),
      ts = scalars_tensor({.learning_rate = 1.0});
  for_each_kernel([&](Ctx& ctx) {
    TestTensor p(DType::kF32, {33}), m(DType::kF32, {33}, Values(33, std::nan("")));
    sgd_step(ctx, p, {}, grad, m, ts, {.momentum = 0.9});
    EXPECT_EQ(to_doubles(*p), Values(33, -1.0));
    EXPECT_EQ(to_doubles(*m), Values(33, 1.0));
    return outputs(p, m);
  });
}

// The published formula in float64. Where the interpolation nearly cancels, rounding decides its
// sign.
TEST(Lion, MatchesTheFormula) {
  const LionArgs args{.weight_decay = 0.1, .lr_multiplier = 0.5};
  const StepScalars s{.grad_multiplier = 0.25, .learning_rate = 0.2, .count = 3};
  for (const Config& c : kConfigs)
    for (int64_t n : kOddSizes) {
      SCOPED_TRACE(concat(text_of(c), " n ", n));
      const Values grad = stored(sum_dtype(c.param), normals("grad", n));
      const TestTensor tg(sum_dtype(c.param), {n}, grad), ts = scalars_tensor(s);
      const Operands start(c, n);
      Values p = to_doubles(*start.p), m = to_doubles(*start.m);
      const double lr = 0.1;
      for (size_t i = 0; i < p.size(); ++i) {
        const double g = 0.25 * grad[i], step = 0.9 * m[i] + (1 - 0.9) * g;
        ASSERT_GT(std::abs(step), 1e-6);
        p[i] -= lr * ((step > 0 ? 1.0 : -1.0) + 0.1 * p[i]);
        m[i] = 0.99 * m[i] + (1 - 0.99) * g;
      }
      const Values magnitude(p.size(), 8.0);
      for_each_kernel([&](Ctx& ctx) {
        Operands o(c, n);
        lion_step(ctx, o.p, o.master_of(c), tg, o.m, ts, args);
        EXPECT_WITHIN(o.p, p, magnitude, stored_tolerance(c.param));
        EXPECT_WITHIN(o.m, m, magnitude, stored_tolerance(c.state));
        if (c.master) {
          EXPECT_EQ(to_doubles(*o.p), stored(c.param, to_doubles(*o.master)));
        }
        return outputs(o.p, o.m, o.master);
      });
    }
}

// As torch.sign.
TEST(Lion, TakesTheSignOfZeroAsZeroAndKeepsNan) {
  const TestTensor grad(DType::kF32, {5}, {0.0, -1.0, 2.0, std::nan(""), 9.0});
  const TestTensor ts = scalars_tensor({.learning_rate = 0.5});
  for_each_kernel([&](Ctx& ctx) {
    TestTensor p(DType::kF32, {5}, Values(5, 1.0)), m(DType::kF32, {5}, {0, 0, 0, 0, -1.0});
    lion_step(ctx, p, {}, grad, m, ts, {.beta1 = 0.9, .beta2 = 0.5});
    const Values got = to_doubles(*p), momentum = to_doubles(*m);
    EXPECT_EQ(Values(got.begin(), got.begin() + 3), (Values{1.0, 1.5, 0.5}));
    EXPECT_TRUE(std::isnan(got[3]) && std::isnan(momentum[3]));
    EXPECT_EQ(Values(momentum.begin(), momentum.begin() + 3), (Values{0.0, -0.5, 1.0}));
    EXPECT_EQ(momentum[4], 4.0);
    return outputs(TestTensor(DType::kF32, {1}, {got[2]}));
  });
}

TEST(SgdAndLion, PartsOfARangeGiveTheSameBits) {
  const int64_t n = 1000;
  const ElementIndex index{.first = 12'345};
  const TestTensor ts = scalars_tensor({.grad_multiplier = 0.3, .learning_rate = 0.01, .count = 3});
  for (const Config& c : kConfigs) {
    const TestTensor grad(sum_dtype(c.param), {n}, normals("grad", n));
    for_each_kernel([&](Ctx& ctx) {
      std::vector<TestTensor> out;
      for (int kind = 0; kind < 3; ++kind) {
        Operands whole(c, n), parts(c, n);
        const auto step = [&](Operands& o, int64_t begin, int64_t end) {
          const auto cut = [&](const Tensor& t) { return t.slice(0, begin, end); };
          const Tensor master = c.master ? cut(*o.master) : Tensor();
          ElementIndex at = index;
          at.offset = begin;
          if (kind == 0)
            lion_step(ctx, cut(*o.p), master, cut(*grad), cut(*o.m), ts,
                      {.weight_decay = 0.1, .rounding = {1, 2}, .index = at});
          else
            sgd_step(ctx, cut(*o.p), master, cut(*grad), kind == 1 ? cut(*o.m) : Tensor(), ts,
                     {.momentum = kind == 1 ? 0.9 : 0.0,
                      .weight_decay = 0.1,
                      .rounding = {1, 2},
                      .index = at});
        };
        step(whole, 0, n);
        for (int64_t begin = 0; begin < n; begin += 7) step(parts, begin, std::min(n, begin + 7));
        EXPECT_SAME_BITS(*parts.p, *whole.p);
        EXPECT_SAME_BITS(*parts.m, *whole.m);
        EXPECT_SAME_BITS(*parts.master, *whole.master);
        out.push_back(std::move(whole.p));
      }
      return out;
    });
  }
}

// p = 1 - g with g a multiple of 2^-23 is exact in float32, so that only the rounding remains.
TestTensor rounded_after_sgd(Ctx& ctx, const Values& start, const Values& grad, int64_t count,
                             const RandomKey& key, int64_t element0) {
  const auto n = std::ssize(start);
  TestTensor p(DType::kBF16, {n}, start);
  sgd_step(ctx, p, {}, TestTensor(DType::kF32, {n}, grad), {},
           scalars_tensor({.learning_rate = 1.0, .count = count}),
           {.rounding = key, .index = {.first = element0}});
  return p;
}

TEST(StochasticRounding, TakesTheWordOfTheGlobalElement) {
  const int64_t n = 1000, count = 5, element0 = (int64_t{1} << 40) + 3;
  const RandomKey key{11, stream_id("rounding")};
  const RandomKey of_update{key.seed, substream(key.stream, static_cast<uint64_t>(count))};
  Values grad, want;
  for (int64_t i = 0; i < n; ++i) {
    const float exact = 1.0f + static_cast<float>(i * 61) * 0x1p-23f;
    grad.push_back(1.0 - static_cast<double>(exact));
    const uint32_t word = philox_word(of_update, static_cast<uint64_t>(element0 + i));
    const uint32_t bits = std::bit_cast<uint32_t>(exact) + (word & 0xffffu);
    want.push_back(static_cast<double>(std::bit_cast<float>(bits & 0xffff0000u)));
  }
  for_each_kernel([&](Ctx& ctx) {
    TestTensor p =
        rounded_after_sgd(ctx, Values(static_cast<size_t>(n), 1.0), grad, count, key, element0);
    EXPECT_EQ(to_doubles(*p), want);
    return outputs(p);
  });
}

TEST(StochasticRounding, IsUnbiased) {
  const int64_t n = 100'000;
  const auto count = static_cast<double>(n);
  Ctx ctx(2, "test");
  for (double sign : {1.0, -1.0})
    for (double share : {0.0078125, 0.25, 0.5, 0.9921875}) {
      SCOPED_TRACE(concat("sign ", sign, " share ", share));
      const Values grad(static_cast<size_t>(n), -sign * share * kBf16Step);
      const Values start(static_cast<size_t>(n), sign);
      const TestTensor p = rounded_after_sgd(ctx, start, grad, 1, {3, 4}, 0);
      double up = 0;
      for (double x : to_doubles(*p)) {
        ASSERT_TRUE(x == sign || x == sign * (1 + kBf16Step)) << x;
        up += x != sign;
      }
      EXPECT_NEAR(up, share * count, 4 * std::sqrt(count * share * (1 - share)));
    }
}

TEST(StochasticRounding, DrawsAnewForEveryUpdate) {
  // 100 updates of a twentieth of a step: a binomial walk. With the same random bits in each
  // update, some elements would move all the way and the others not at all.
  const int64_t n = 4000, updates = 100;
  const double share = 0.05;
  Ctx ctx(2, "test");
  Values p(static_cast<size_t>(n), 1.0);
  const Values grad(static_cast<size_t>(n), -std::round(share * 0x1p16) * 0x1p-23);
  for (int64_t u = 1; u <= updates; ++u)
    p = to_doubles(*rounded_after_sgd(ctx, p, grad, u, {3, 4}, 0));
  double mean = 0, square = 0;
  for (double x : p) {
    const double steps = (x - 1) / kBf16Step;
    mean += steps / static_cast<double>(n);
    square += steps * steps / static_cast<double>(n);
  }
  const double variance = static_cast<double>(updates) * share * (1 - share);
  EXPECT_NEAR(mean, static_cast<double>(updates) * share,
              4 * std::sqrt(variance / static_cast<double>(n)));
  // The standard error of a sample variance is about variance * sqrt(2 / n).
  EXPECT_NEAR(square - mean * mean, variance,
              5 * variance * std::sqrt(2.0 / static_cast<double>(n)));
}

TEST(StochasticRounding, KeepsInfinityNanAndExactValues) {
  const double inf = INFINITY, nan = std::nan("");
  const Values start = {1.0, 1.0, nan, 1.0, -0.0, 0x1p-133, 1.5, 2.0};
  const Values grad = {-inf, inf, 0, nan, 0, 0, -inf, 0};
  for_each_kernel([&](Ctx& ctx) {
    for (int64_t count = 1; count <= 50; ++count) {
      const Values p = to_doubles(*rounded_after_sgd(ctx, start, grad, count, {1, 1}, 0));
      EXPECT_EQ(p[0], inf);
      EXPECT_EQ(p[1], -inf);
      EXPECT_TRUE(std::isnan(p[2]));
      EXPECT_TRUE(std::isnan(p[3]));
      EXPECT_EQ(p[4], 0.0);
      EXPECT_EQ(p[5], 0x1p-133) << "a subnormal value";
      EXPECT_EQ(p[6], inf);
      EXPECT_EQ(p[7], 2.0);
    }
    return outputs(TestTensor(DType::kF32, {8}, Values(8, 1.0)));
  });
}

// Every NaN pattern of a gradient stays NaN, whatever noise is added to it.
TEST(StochasticRounding, NoNanBecomesANumber) {
  const int64_t n = 2048;
  TestTensor grad(DType::kF32, {n});
  for (int64_t i = 0; i < n; ++i)
    grad->as<float>()[i] = std::bit_cast<float>(
        (i % 2 == 0 ? 0x7f800001u : 0xffffffffu - 0x3fffffu) + static_cast<uint32_t>(i));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor p(DType::kBF16, {n});
    sgd_step(ctx, p, {}, grad, {}, scalars_tensor({.learning_rate = 1.0}), {});
    for (double x : to_doubles(*p)) EXPECT_TRUE(std::isnan(x));
    return outputs(TestTensor(DType::kF32, {1}, {1.0}));
  });
}

TEST(SumOfSquares, MatchesALongSum) {
  for (DType dtype : kFloatTypes)
    for (int64_t n : {0, 1, 7, 33, 127, 1000, 100'003}) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const TestTensor x(dtype, {n}, normals("x", n, 100.0));
      long double want = 5;
      for (double v : to_doubles(*x)) want += static_cast<long double>(v) * v;
      for_each_kernel([&](Ctx& ctx) {
        TestTensor out(DType::kF64, {1}, {5.0});
        sum_of_squares(ctx, out, x);
        EXPECT_EACH_CLOSE(out, {static_cast<double>(want)}, tolerance(DType::kF64, n));
        return outputs(out);
      });
    }
}

TEST(SumOfSquares, OfLargeValuesDoesNotOverflow) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {3}, {1e30, -1e30, 1e30}), out(DType::kF64, {1});
  sum_of_squares(ctx, out, x);
  EXPECT_EACH_CLOSE(out, {3e60}, tolerance(DType::kF32));
}

TEST(SumOfSquares, AndSearchSeeWhatIsNotFinite) {
  const int64_t n = 100'003;
  for (DType dtype : kFloatTypes)
    for (double bad : {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)})
      for (int64_t at : {int64_t{0}, int64_t{40'001}, n - 1}) {
        SCOPED_TRACE(concat(dtype, " ", bad, " at ", at));
        Values values(static_cast<size_t>(n), 1.0);
        values[static_cast<size_t>(at)] = bad;
        values[static_cast<size_t>(n - 1)] = bad;
        const TestTensor x(dtype, {n}, values);
        for (int threads : {1, 3}) {
          Ctx ctx(threads, "test");
          const TestTensor out(DType::kF64, {1});
          sum_of_squares(ctx, out, x);
          EXPECT_FALSE(std::isfinite(to_doubles(*out)[0]));
          const TestTensor first({1}, std::vector<int64_t>{1'000'000});
          first_non_finite(ctx, first, x);
          EXPECT_EQ(to_doubles(*first)[0], at);
          first_non_finite(ctx, first, x, 7);  // later elements do not change it
          EXPECT_EQ(to_doubles(*first)[0], at);
          first_non_finite(ctx, first, x, -1);
          EXPECT_EQ(to_doubles(*first)[0], at - 1);
          first_non_finite(ctx, first, x, -9, scalars_tensor({.skip = 0}));
          EXPECT_EQ(to_doubles(*first)[0], at - 1) << "no step failed";
          first_non_finite(ctx, first, x, -9, scalars_tensor({.skip = 1}));
          EXPECT_EQ(to_doubles(*first)[0], at - 9);
        }
      }
}

TEST(FirstNonFinite, FindsNothingAmongFiniteValuesAndAllocatesNothing) {
  Ctx ctx(2, "test");
  const double largest = std::numeric_limits<float>::max();
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{70'000}}) {
    const TestTensor x(DType::kF32, {n}, Values(static_cast<size_t>(n), largest));
    const TestTensor first({1}, std::vector<int64_t>{5});
    const int64_t before = allocation_count();
    first_non_finite(ctx, first, x);
    EXPECT_EQ(allocation_count(), before);
    EXPECT_EQ(to_doubles(*first)[0], 5) << n;
  }
}

TEST(OptimizerStep, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor a(DType::kF32, {3}), b(DType::kF32, {4}), h(DType::kBF16, {3});
  const TestTensor d(DType::kF64, {3}), ts = scalars_tensor({}), wrong(DType::kU8, {3});
  EXPECT_THROW(adamw_step(ctx, a, {}, b, a, a, ts, {}), Error) << "size of grad";
  EXPECT_THROW(adamw_step(ctx, a, {}, h, a, a, ts, {}), Error) << "type of grad";
  EXPECT_THROW(adamw_step(ctx, a, {}, a, a, h, ts, {}), Error) << "m and v differ";
  EXPECT_THROW(adamw_step(ctx, a, a, a, a, a, ts, {}), Error) << "master beside float32";
  EXPECT_THROW(adamw_step(ctx, d, {}, d, h, h, ts, {}), Error) << "bf16 state beside float64";
  EXPECT_THROW(adamw_step(ctx, a, {}, a, a, a, wrong, {}), Error) << "scalars";
  EXPECT_THROW(sgd_step(ctx, a, {}, a, {}, ts, {.momentum = 0.9}), Error) << "no buffer";
  EXPECT_THROW(lion_step(ctx, a, {}, a, {}, ts, {}), Error) << "no momentum";
  EXPECT_THROW(adamw_step(ctx, a, {}, a, a, {}, ts, {}), Error) << "no second moment";
  EXPECT_THROW(sum_of_squares(ctx, a, a), Error);
}

TEST(OptimizerStep, PlanningWritesNothing) {
  const Operands o({DType::kBF16, DType::kF32, true}, 33);
  const TestTensor grad(DType::kF32, {33}, normals("grad", 33)), out(DType::kF64, {1}, {2.0});
  const TestTensor ts = scalars_tensor({.learning_rate = 0.1}), first({1}, std::vector<int64_t>{5});
  const ArenaPlan plan = expect_plannable(
      [&](Ctx& ctx) {
        adamw_step(ctx, o.p, o.master, grad, o.m, o.v, ts, {});
        sgd_step(ctx, o.p, o.master, grad, o.m, ts, {.momentum = 0.9});
        lion_step(ctx, o.p, o.master, grad, o.m, ts, {});
        sum_of_squares(ctx, out, grad);
        first_non_finite(ctx, first, grad);
      },
      {&o.p, &o.master, &o.m, &o.v, &out, &first});
  EXPECT_EQ(std::ssize(plan.blocks), 1);
}

}  // namespace
}  // namespace trireme::test::test_optimizer_step
