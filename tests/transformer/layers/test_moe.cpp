#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"
#include "engine/ops/optimizer/optimizer_step.h"
#include "tests/support/compare.h"
#include "tests/transformer/layers/moe_case.h"
#include "transformer/layers/moe.h"

namespace trireme::test::test_moe {
namespace {

using Values = std::vector<double>;

constexpr double kScale = 0.125;
size_t at(int64_t i) { return static_cast<size_t>(i); }

double silu(double z) { return z / (1 + std::exp(-z)); }

// down(silu(gate x) * up x)
Values swiglu(const MoeCase& c, const std::string& gate, const std::string& up,
              const std::string& down, int64_t width, const double* x) {
  const int64_t n = c.config.hidden_size;
  const Values g = moe_value(c, gate + ".weight", width * n);
  const Values u = moe_value(c, up + ".weight", width * n);
  const Values d = moe_value(c, down + ".weight", width * n);
  Values y(at(n), 0.0);
  for (int64_t f = 0; f < width; ++f) {
    double a = 0, b = 0;
    for (int64_t i = 0; i < n; ++i) {
      a += g[at(f * n + i)] * x[i];
      b += u[at(f * n + i)] * x[i];
    }
    for (int64_t i = 0; i < n; ++i) y[at(i)] += d[at(i * width + f)] * silu(a) * b;
  }
  return y;
}

// All experts for one token, weighted: softmax routers without groups.
Values dense_loop(const MoeCase& c, const double* x) {
  const MoeConfig& moe = c.config.moe;
  const bool mixtral = c.config.family == ModelFamily::kMixtral;
  const std::string prefix =
      std::string("model.layers.0") + (mixtral ? ".block_sparse_moe" : ".mlp");
  const int64_t n = c.config.hidden_size;
  const Values router = moe_value(c, prefix + ".gate.weight", moe.experts * n);
  Values p;
  double total = 0;
  for (int64_t e = 0; e < moe.experts; ++e) {
    double logit = 0;
    for (int64_t i = 0; i < n; ++i) logit += router[at(e * n + i)] * x[i];
    p.push_back(std::exp(logit));
    total += p.back();
  }
  for (double& v : p) v /= total;
  std::vector<int64_t> order(at(moe.experts));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t e) { return p[at(e)]; });
  double chosen = 0;
  for (int64_t j = 0; j < moe.experts_per_token; ++j) chosen += p[at(order[at(j)])];
  Values y(at(n), 0.0);
  for (int64_t e = 0; e < moe.experts; ++e) {
    const bool in = std::ranges::find(order.begin(), order.begin() + moe.experts_per_token, e) !=
                    order.begin() + moe.experts_per_token;
    const double w = !in ? 0 : moe.normalize_weights ? p[at(e)] / chosen : p[at(e)];
    const std::string expert = concat(prefix, ".experts.", e);
    const Values out = swiglu(c, expert + (mixtral ? ".w1" : ".gate_proj"),
                              expert + (mixtral ? ".w3" : ".up_proj"),
                              expert + (mixtral ? ".w2" : ".down_proj"), moe.intermediate_size, x);
    for (int64_t i = 0; i < n; ++i) y[at(i)] += w * out[at(i)];
  }
  if (moe.shared_intermediate_size == 0) return y;
  const std::string shared = prefix + ".shared_expert";
  const Values out = swiglu(c, shared + ".gate_proj", shared + ".up_proj", shared + ".down_proj",
                            moe.shared_intermediate_size, x);
  const Values gate = moe_value(c, shared + "_gate.weight", n);
  double logit = 0;
  for (int64_t i = 0; i < n; ++i) logit += gate[at(i)] * x[i];
  for (int64_t i = 0; i < n; ++i) y[at(i)] += out[at(i)] / (1 + std::exp(-logit));
  return y;
}

TEST(Moe, DroplessIsADenseLoopOverExperts) {
  for (const char* name : {"mixtral", "qwen2_moe"}) {
    SCOPED_TRACE(name);
    MoeCase c = moe_case(name);
    c.padding = 0;
    const int64_t n = c.config.hidden_size, rows = kMoeMicroBatches * c.tokens;
    const Values x = moe_value(c, "x", rows * n);
    const MoeResult got = run_moe(c, {});
    Values want;
    for (int64_t t = 0; t < rows; ++t)
      for (double v : dense_loop(c, x.data() + t * n)) want.push_back(v);
    EXPECT_LT(worst_relative(got.y, want), 1e-12);
  }
}

// Loss that the gradients belong to: sum of y dy, and the routers' losses times the scale.
double objective(const MoeCase& c, const MoeResult& r) {
  const Values dy = moe_value(c, "dy", std::ssize(r.y));
  double sum = 0;
  for (size_t i = 0; i < dy.size(); ++i) sum += dy[i] * r.y[i];
  for (double v : r.losses) sum += kScale * v;
  return sum;
}

TEST(Moe, GradientsMatchFiniteDifferencesForEveryRouter) {
  for (MoeCase c : moe_cases()) {
    SCOPED_TRACE(c.name);
    c.tokens = 4;
    c.padding = 0;
    const MoeResult base = run_moe(c, {});
    std::map<std::string, Values> want = base.grads;
    want["x"] = base.dx;
    for (const auto& [name, gradient] : want) {
      SCOPED_TRACE(name);
      // A few elements of each tensor; a step so small that no choice of experts changes.
      Values got, slopes;
      for (size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 3) {
        const auto f = [&, name = name, elements = gradient.size()](const Values& v) {
          std::map<std::string, Values> offsets{{name, Values(elements, 0.0)}};
          offsets[name][i] = v[0];
          return Values{objective(c, run_moe(c, {}, offsets))};
        };
        slopes.push_back(finite_difference_gradient(f, {0.0}, {1.0}, 3e-5)[0]);
        got.push_back(gradient[i]);
      }
      double largest = 1;
      for (double v : gradient) largest = std::max(largest, std::abs(v));
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], slopes[i], 1e-8 * largest) << "element " << i;
    }
  }
}

void expect_equal(const MoeResult& got, const MoeResult& want) {
  EXPECT_LT(worst_relative(got.y, want.y), 1e-9);
  EXPECT_LT(worst_relative(got.dx, want.dx), 1e-9);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-9 * (1 + std::abs(want.losses[i])));
  ASSERT_EQ(got.grads.size(), want.grads.size());
  double largest = 0;
  for (const auto& [name, values] : want.grads)
    for (double v : values) largest = std::max(largest, std::abs(v));
  EXPECT_GT(largest, 0);
  for (const auto& [name, values] : want.grads) {
    SCOPED_TRACE(name);
    const Values& other = got.grads.at(name);
    ASSERT_EQ(other.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(other[i], values[i], 1e-9 * largest);
  }
}

ParallelSizes sizes(int tp, int cp, int dp, int ep, int etp, bool sequence_parallel) {
  ParallelSizes s;
  s.tp = tp;
  s.cp = cp;
  s.dp = dp;
  s.ep = ep;
  s.etp = etp;
  s.sequence_parallel = sequence_parallel;
  return s;
}

TEST(Moe, EveryLayoutGivesTheResultsOfOneRank) {
  const std::vector<ParallelSizes> layouts = {
      sizes(1, 1, 2, 1, 1, false), sizes(1, 1, 2, 2, 1, false), sizes(2, 1, 1, 1, 1, false),
      sizes(2, 1, 1, 2, 1, false), sizes(2, 1, 1, 2, 1, true),  sizes(2, 1, 1, 1, 2, false),
      sizes(2, 1, 1, 1, 2, true),  sizes(1, 2, 1, 2, 1, false), sizes(1, 2, 2, 4, 1, false),
      sizes(2, 1, 2, 2, 2, true),  sizes(2, 2, 2, 4, 2, false), sizes(4, 1, 1, 2, 1, false),
      sizes(4, 1, 2, 2, 1, true),  sizes(1, 2, 2, 2, 1, false), sizes(2, 1, 2, 4, 1, false)};
  for (const MoeCase& c : moe_cases()) {
    const MoeResult one = run_moe(c, {});
    for (const ParallelSizes& s : layouts) {
      SCOPED_TRACE(concat(c.name, ": ", describe(s)));
      expect_equal(run_moe(c, {s}), one);
    }
  }
}

// 10 tokens over 4 tensor-parallel ranks: shares of 3, 3, 3 and 1, or padding.
TEST(Moe, AnyNumberOfTokensIsShared) {
  for (const char* name : {"mixtral", "capacity"}) {
    MoeCase c = moe_case(name);
    c.tokens = 10;
    const MoeResult one = run_moe(c, {});
    for (bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(concat(name, " ", sequence_parallel));
      expect_equal(run_moe(c, {sizes(4, 1, 1, 2, 2, sequence_parallel)}), one);
    }
  }
}

TEST(Moe, RowsOverTheBoundGoInRounds) {
  for (const char* name : {"mixtral", "deepseek", "capacity"}) {
    SCOPED_TRACE(name);
    const MoeCase c = moe_case(name);
    const MoeResult one = run_moe(c, {});
    EXPECT_EQ(one.rounds, 1u);
    for (int64_t bound : {5, 1}) {
      const MoeResult many = run_moe(c, {sizes(2, 1, 2, 2, 2, true), bound});
      EXPECT_GT(many.rounds, 2u);
      expect_equal(many, one);
    }
  }
}

// A bias much larger than every score decides the choice.
TEST(Moe, EverythingToOneExpertAndNothingToOne) {
  MoeCase c = moe_case("deepseek");
  c.config.moe.groups = c.config.moe.kept_groups = 1;
  c.config.moe.experts_per_token = 1;
  c.bias = {0, 0, 0, 100, 0, 0, 0, 0};
  const MoeResult all = run_moe(c, {});
  for (const auto& [name, gradient] : all.grads) {
    const bool expert = name.find(".experts.") != std::string::npos;
    const bool chosen = name.find(".experts.3.") != std::string::npos;
    const bool zero = std::ranges::all_of(gradient, [](double v) { return v == 0; });
    if (expert) {
      EXPECT_EQ(zero, !chosen) << name;
    }
  }
  for (const ParallelSizes& s :
       {sizes(2, 1, 2, 4, 1, false), sizes(2, 1, 2, 2, 2, true), sizes(4, 1, 1, 4, 1, true)})
    expect_equal(run_moe(c, {s}), all);
  c.bias = {0, 0, -100, 0, 0, 0, 0, 0};
  expect_equal(run_moe(c, {sizes(2, 1, 2, 4, 1, false)}), run_moe(c, {}));
}

// Dispatch and combine, forward and backward: each pair of a remote expert is sent four times.
TEST(Moe, DispatchedBytesAreThoseOfTheRoutingTable) {
  for (const char* name : {"mixtral", "capacity"})
    for (const ParallelSizes& s :
         {sizes(1, 1, 2, 2, 1, false), sizes(2, 1, 2, 4, 1, true), sizes(2, 1, 2, 2, 2, false)}) {
      SCOPED_TRACE(concat(name, ": ", describe(s)));
      const MoeCase c = moe_case(name);
      const MoeResult r = run_moe(c, {s});
      EXPECT_GT(r.remote_pairs, 0);
      EXPECT_EQ(r.dispatched_bytes, 4 * r.remote_pairs * c.config.hidden_size * 8);
    }
  EXPECT_EQ(run_moe(moe_case("mixtral"), {}).dispatched_bytes, 0);
}

TEST(Moe, CapacityDropsSomething) {
  MoeCase c = moe_case("capacity");
  const MoeResult dropped = run_moe(c, {});
  c.config.moe.capacity_factor = 0;
  EXPECT_GT(worst_relative(dropped.y, run_moe(c, {}).y), 0.1);
}

TEST(Moe, StepsOfAnyRoutingFitOnePlan) {
  MoeCase c = moe_case("deepseek");
  ParameterList list;
  Moe moe(c.config, Layout{}, list, "model.layers.0", 0, 0);
  moe.set_bound(20);
  ParameterStore store(list, DType::kF32);
  RouterState routers(c.config, DType::kF32);
  Ctx ctx(2, "test");
  const int64_t tokens = 12, n = c.config.hidden_size;
  std::vector<int64_t> rows(at(tokens));
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int32_t> targets(at(tokens), 1);
  Tokens t;
  t.count = tokens;
  t.global_index = ConstTensor(rows.data(), DType::kI64, {tokens});
  t.targets = ConstTensor(targets.data(), DType::kI32, {tokens});
  const TestTensor scale(DType::kF64, {1}, {1.0}), values(DType::kF64, {4});
  size_t rounds = 0;
  const auto step = [&](const Tensor& x) {
    Pass pass{ctx, store, t, nullptr, nullptr, &routers, *scale, *values};
    const Activation y = ctx.allocate("y", DType::kF32, {tokens, n});
    const Activation dx = ctx.allocate("dx", DType::kF32, {tokens, n});
    Moe::Saved saved;
    moe.forward(pass, y, x, &saved, false);
    rounds = saved.route.rounds.size();
    const Moe::Deferred deferred = moe.backward_input(pass, dx, x, x, saved);
    moe.backward_weight(pass, x, x, saved, deferred);
  };
  const TestTensor x(DType::kF32, {tokens, n}, normals("x", tokens * n));
  ctx.arena.begin_planning();
  step(x);
  const ArenaPlan plan = ctx.arena.end_planning();
  store.allocate(ctx, true);
  store.initialize(ctx, 1);
  ctx.arena.reserve(plan.capacity);
  const int64_t count = allocation_count();
  // 36 pairs in rounds of 20; then few enough tokens for one round.
  for (int64_t valid : {12, 5, 0, 12}) {
    for (int64_t i = 0; i < tokens; ++i) rows[at(i)] = i < valid ? i : -1;
    store.begin_gradients();
    ctx.arena.begin_step(plan);
    step(x);
    ctx.arena.end_step();
    EXPECT_EQ(rounds, valid == 12 ? 2u : 1u);
  }
  EXPECT_EQ(allocation_count(), count);
}

}  // namespace
}  // namespace trireme::test::test_moe
