#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/core/cpu.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/gemm_choice.h"
#include "engine/ops/gemm/gemm_library.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_gemm {
namespace {

struct Types {
  DType in, out;
};
const std::vector<Types> kTypes = {{DType::kF64, DType::kF64},   {DType::kF32, DType::kF32},
                                   {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32},
                                   {DType::kF16, DType::kF16},   {DType::kF16, DType::kF32}};

struct Case {
  int64_t m, n, k;
  bool ta = false, tb = false;
  bool accumulate = false, bias = false;
  float alpha = 1.0f;
  std::string str() const {
    return concat("m ", m, " n ", n, " k ", k, " ta ", ta, " tb ", tb, " accumulate ", accumulate,
                  " bias ", bias, " alpha ", static_cast<double>(alpha));
  }
};

// Data whose sums do not cancel to zero where a row is too short to set a scale.
std::vector<double> values(const std::string& name, int64_t n, const Case& c) {
  std::vector<double> out = normals(name, n);
  if (c.m * c.n < 16)
    for (double& v : out) v = 1.0 + 0.25 * v;
  return out;
}

// A (rows, columns) view inside a wider matrix, so that its row stride differs from its width.
class Framed {
 public:
  Framed(DType dtype, int64_t rows, int64_t columns, const std::string& name, const Case& c)
      : wide_(dtype, {rows, columns + 5}, values(name, rows * (columns + 5), c)),
        before_(to_doubles(wide_)),
        columns_(columns) {}
  Tensor view() const { return wide_->slice(1, 3, 3 + columns_); }
  std::vector<double> before() const { return to_doubles(view()); }
  double original(int64_t row, int64_t column) const {
    return before_[static_cast<size_t>(row * (columns_ + 5) + 3 + column)];
  }
  // Returns whether the frame around the view and the guard bands are unchanged.
  bool frame_intact() const {
    const std::vector<double> now = to_doubles(wide_);
    for (size_t i = 0; i < now.size(); ++i) {
      const auto column = static_cast<int64_t>(i) % (columns_ + 5);
      const bool inside = column >= 3 && column < 3 + columns_;
      if (!inside && now[i] != before_[i]) return false;
    }
    return wide_.guards_intact();
  }

 private:
  TestTensor wide_;
  std::vector<double> before_;
  int64_t columns_;
};

struct Operands {
  Operands(const Types& t, const Case& c)
      : a(t.in, c.ta ? c.k : c.m, c.ta ? c.m : c.k, "gemm.a", c),
        b(t.in, c.tb ? c.n : c.k, c.tb ? c.k : c.n, "gemm.b", c),
        out(t.out, c.m, c.n, "gemm.c", c),
        bias(t.out, {c.n}, values("gemm.bias", c.n, c)) {}
  Framed a, b, out;
  TestTensor bias;
};

std::vector<double> reference(const Operands& o, const Case& c) {
  std::vector<double> want(static_cast<size_t>(c.m * c.n));
  const std::vector<double> bias = to_doubles(o.bias);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < c.k; ++p)
        sum += (c.ta ? o.a.original(p, i) : o.a.original(i, p)) *
               (c.tb ? o.b.original(j, p) : o.b.original(p, j));
      sum *= static_cast<double>(c.alpha);
      if (c.accumulate) sum += o.out.original(i, j);
      if (c.bias) sum += bias[static_cast<size_t>(j)];
      want[static_cast<size_t>(i * c.n + j)] = sum;
    }
  return want;
}

Transpose flag(bool transposed) { return transposed ? Transpose::kYes : Transpose::kNo; }

GemmArgs arguments(const Operands& o, const Case& c) {
  return {.alpha = c.alpha,
          .accumulate = c.accumulate,
          .bias = c.bias ? ConstTensor(*o.bias) : ConstTensor()};
}

// Narrow outputs are compared as one row: a row of one element gives no scale.
std::string compare_values(const ConstTensor& got, const std::vector<double>& want, const Case& c,
                           Tolerance tol) {
  if (c.n >= 16) return compare(got, want, tol);
  const std::vector<double> flat = to_doubles(got);
  return compare(*TestTensor(got.dtype(), {1, c.m * c.n}, flat), want, tol);
}

Tolerance allowed(const Types& t, const Case& c) {
  return tolerance(t.out, c.k, t.in == DType::kF64 ? DType::kF64 : DType::kF32);
}

void expect_product(Ctx& ctx, const Types& t, const Case& c) {
  SCOPED_TRACE(concat(t.in, " -> ", t.out, " ", c.str(), " threads ", ctx.threads, " isa ",
                      isa_name(active_isa())));
  const Operands o(t, c);
  gemm(ctx, o.out.view(), o.a.view(), flag(c.ta), o.b.view(), flag(c.tb), arguments(o, c));
  EXPECT_EQ(compare_values(o.out.view(), reference(o, c), c, allowed(t, c)), "");
  EXPECT_TRUE(o.out.frame_intact());
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                               {1, 127, 33},
                               {2, 33, 129},
                               {5, 7, 1000},
                               {8, 40, 127},
                               {9, 64, 64},
                               {33, 7, 127},
                               {127, 100, 33},
                               {64, 257, 7},
                               {97, 33, 300},
                               {100, 1, 40}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        out.push_back({m, n, k, ta, tb});
        out.push_back({m, n, k, ta, tb, true, false, -0.5f});
        out.push_back({m, n, k, ta, tb, false, true});
        out.push_back({m, n, k, ta, tb, false, true, 2.0f});
      }
  return out;
}

class EveryIsa : public ::testing::Test {
 protected:
  static std::vector<Isa> isas() {
    std::vector<Isa> out;
    for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable})
      if (has_isa(isa)) out.push_back(isa);
    return out;
  }
  void TearDown() override { set_active_isa(best_isa()); }
};

TEST(Gemm, MatchesPlainSums) {
  Ctx ctx(2, "test");
  for (const Types& t : kTypes)
    for (const Case& c : cases()) expect_product(ctx, t, c);
}

// More than one piece (gemm_widened.cpp): along terms, rows and columns.
TEST(Gemm, WidensLargeOperandsInPieces) {
  Ctx ctx(2, "test");
  constexpr int64_t kMany = 33000, kSome = 130, kFew = 2;
  for (const Types& t : {kTypes[2], kTypes[4], kTypes[5]}) {
    expect_product(ctx, t, {kFew, kSome, kMany, false, false, false, true});
    expect_product(ctx, t, {kSome, kFew, kMany, true, false, true, false, -0.5f});
    expect_product(ctx, t, {kFew, kMany, kSome, false, false, false, true});
    expect_product(ctx, t, {kMany, kFew, kSome, true, false, true, false, -0.5f});
  }
}

using GemmKernels = EveryIsa;

TEST_F(GemmKernels, MatchPlainSumsOnEveryInstructionSet) {
  Ctx ctx(2, "test");
  for (const Isa isa : isas()) {
    set_active_isa(isa);
    for (const Types& t : kTypes)
      for (const auto [m, n, k] : {std::array<int64_t, 3>{1, 33, 1000},
                                   {1, 43, 4211},
                                   {1, 9, 8211},
                                   {3, 50, 127},
                                   {4, 9, 65}}) {
        expect_product(ctx, t, {m, n, k, false, true, false, true});
        expect_product(ctx, t, {m, n, k, false, true, true, false, 0.5f});
      }
    expect_product(ctx, kTypes[0], {127, 100, 300, true, false, true});
    expect_product(ctx, kTypes[0], {33, 1000, 257, false, true, false, true});
  }
}

TEST_F(GemmKernels, EveryNumberOfFewRows) {
  Ctx ctx(3, "test");
  for (const Types& t : kTypes)
    for (int64_t m = 1; m <= 5; ++m)
      for (const int64_t k : {83, 2100, 4200}) expect_product(ctx, t, {m, 37, k, false, true});
}

TEST(Gemm, AnotherNumberOfThreadsGivesTheSameBits) {
  // Without AVX-512 the library splits sums among threads (engine/ops/gemm/gemm.h).
  const bool whole_sums = gemm_library_version().find("avx512") != std::string::npos;
  for (const Types& t : whole_sums ? kTypes : std::vector<Types>{kTypes[0]})
    for (const Case& c : {Case{1, 300, 129, false, true}, Case{130, 300, 700, false, true},
                          Case{130, 700, 300}, Case{300, 700, 130, true, false}}) {
      std::vector<std::vector<double>> results;
      for (const int threads : {1, 2, 3, 2}) {
        Ctx ctx(threads, "test");
        const Operands o(t, c);
        gemm(ctx, o.out.view(), o.a.view(), flag(c.ta), o.b.view(), flag(c.tb));
        results.push_back(to_doubles(o.out.view()));
      }
      for (const auto& r : results) EXPECT_EQ(r, results[0]) << concat(t.in, " ", c.str());
    }
}

// Some rows of a product, without the others.
std::vector<double> rows_alone(const Types& t, const Case& c, int threads, int64_t begin,
                               int64_t end) {
  Ctx ctx(threads, "test");
  ctx.gemm->batch_invariant = true;
  const Operands o(t, c);
  const Tensor out = o.out.view().slice(0, begin, end);
  gemm(ctx, out, o.a.view().slice(0, begin, end), Transpose::kNo, o.b.view(), Transpose::kYes,
       arguments(o, c));
  return to_doubles(out);
}

void expect_the_same_among_others(const Types& t, const Case& c) {
  const std::vector<double> all = rows_alone(t, c, 2, 0, c.m);
  const TestTensor whole(t.out, {c.m, c.n}, all);
  EXPECT_EQ(compare_values(*whole, reference(Operands(t, c), c), c, allowed(t, c)), "");
  for (const auto [begin, end] : {std::array<int64_t, 2>{0, 1}, {22, 23}, {7, 9}, {4, 8}, {1, 22}})
    for (const int threads : {1, 3}) {
      const std::vector<double> some = rows_alone(t, c, threads, begin, end);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + begin * c.n))
          << concat(t.in, " -> ", t.out, " ", c.str(), " rows ", begin, " to ", end, " threads ",
                    threads, " isa ", isa_name(active_isa()));
    }
}

TEST_F(GemmKernels, ARowIsTheSameAmongOthersWhereAsked) {
  for (const Isa isa : isas()) {
    set_active_isa(isa);
    for (const Types& t : kTypes)
      for (const auto [n, k] : {std::array<int64_t, 2>{37, 300}, {128, 515}, {33, 7}}) {
        expect_the_same_among_others(t, {23, n, k, false, true, true, false, 0.7f});
        expect_the_same_among_others(t, {23, n, k, false, true, false, true});
      }
  }
}

TEST(Gemm, RefusesWhatIsNotBatchInvariant) {
  Ctx ctx(1, "test");
  ctx.gemm->batch_invariant = true;
  const TestTensor x(DType::kF32, {2, 8}), w(DType::kF32, {8, 4}), y(DType::kF32, {2, 4});
  EXPECT_THROW(gemm(ctx, *y, *x, Transpose::kNo, *w, Transpose::kNo), Error);
  const PackedWeight packed = pack_weight(ctx, *TestTensor(DType::kF32, {4, 8}));
  EXPECT_THROW(linear_forward_packed(ctx, *y, *x, packed, {}), Error);
}

TEST(Gemm, RepeatedCallsGiveTheSameBits) {
  Ctx ctx(2, "test");
  for (const Types& t : kTypes) {
    const Case c{97, 130, 513, true, false};
    const Operands first(t, c), second(t, c);
    for (const Operands* o : {&first, &second})
      gemm(ctx, o->out.view(), o->a.view(), flag(c.ta), o->b.view(), flag(c.tb));
    EXPECT_EQ(to_doubles(first.out.view()), to_doubles(second.out.view()));
  }
}

TEST(Gemm, RanksAsThreadsOfOneProcessDoNotDisturbEachOther) {
  const Case c{97, 130, 513, false, true};
  for (const Types& t : kTypes) {
    const Operands alone(t, c);
    Ctx ctx(2, "test");
    gemm(ctx, alone.out.view(), alone.a.view(), flag(c.ta), alone.b.view(), flag(c.tb));
    std::vector<std::string> differences(3);
    std::vector<std::thread> ranks;
    for (std::string& difference : differences)
      ranks.emplace_back([&] {
        Ctx own(2, "rank");
        const Operands o(t, c);
        for (int i = 0; i < 5; ++i)
          gemm(own, o.out.view(), o.a.view(), flag(c.ta), o.b.view(), flag(c.tb));
        if (to_doubles(o.out.view()) != to_doubles(alone.out.view())) difference = "differs";
      });
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(differences, std::vector<std::string>(3)) << text(t.in);
  }
}

TEST(Gemm, NeverReadsTheOldContentUnlessAccumulating) {
  Ctx ctx(2, "test");
  for (const Types& t : kTypes)
    for (const int64_t m : {4, 40}) {
      const Case c{m, 64, 64, false, true};
      const Operands o(t, c);
      const Tensor out = o.out.view();
      const TestTensor nan(t.out, out.shape(),
                           std::vector<double>(static_cast<size_t>(out.numel()), NAN));
      gemm(ctx, *nan, o.a.view(), flag(c.ta), o.b.view(), flag(c.tb));
      EXPECT_EQ(compare(*nan, reference(o, c), allowed(t, c)), "");
      EXPECT_TRUE(nan.guards_intact());
    }
}

TEST(Gemm, PropagatesNotANumberAndInfinity) {
  Ctx ctx(2, "test");
  for (const Types& t : kTypes)
    for (const int64_t m : {2, 40}) {
      std::vector<double> a(static_cast<size_t>(m * 8), 1.0);
      a[3] = NAN;
      a[8] = INFINITY;
      const TestTensor x(t.in, {m, 8}, a), w(t.in, {16, 8}, std::vector<double>(128, 1.0));
      const TestTensor y(t.out, {m, 16});
      gemm(ctx, *y, *x, Transpose::kNo, *w, Transpose::kYes);
      const std::vector<double> got = to_doubles(*y);
      for (size_t j = 0; j < 16; ++j) {
        EXPECT_TRUE(std::isnan(got[j]));
        EXPECT_TRUE(std::isinf(got[16 + j]));
      }
    }
}

TEST(Gemm, SumsOverNothing) {
  Ctx ctx(2, "test");
  for (const Types& t : kTypes) {
    const TestTensor a(t.in, {3, 0}), b(t.in, {0, 5});
    const TestTensor c(t.out, {3, 5}, std::vector<double>(15, 7.0));
    const TestTensor bias(t.out, {5}, {1, 2, 3, 4, 5});
    gemm(ctx, *c, *a, Transpose::kNo, *b, Transpose::kNo, {.accumulate = true});
    EXPECT_EQ(to_doubles(*c), std::vector<double>(15, 7.0));
    gemm(ctx, *c, *a, Transpose::kNo, *b, Transpose::kNo, {.bias = *bias});
    EXPECT_EQ(to_doubles(*c), (std::vector<double>{1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
    gemm(ctx, *c, *a, Transpose::kNo, *b, Transpose::kNo);
    EXPECT_EQ(to_doubles(*c), std::vector<double>(15, 0.0));
    const TestTensor none(t.out, {0, 5});
    const TestTensor no_rows(t.in, {0, 4}), w(t.in, {4, 5});
    EXPECT_NO_THROW(gemm(ctx, *none, *no_rows, Transpose::kNo, *w, Transpose::kNo));
  }
}

TEST(Gemm, PlansItsScratchAndAllocatesNothingInAStep) {
  for (const Types& t : kTypes)
    for (const Case& c : {Case{3, 200, 100, false, true, false, true}, Case{60, 200, 100},
                          Case{60, 200, 100, true, false, true}}) {
      Ctx ctx(2, "test");
      const Operands o(t, c);
      const auto call = [&](const Operands& to) {
        gemm(ctx, to.out.view(), to.a.view(), flag(c.ta), to.b.view(), flag(c.tb),
             arguments(to, c));
      };
      ctx.arena.begin_planning();
      call(o);
      const ArenaPlan plan = ctx.arena.end_planning();
      EXPECT_EQ(to_doubles(o.out.view()), o.out.before());
      ctx.arena.reserve(plan.capacity);
      const int64_t allocations = allocation_count();
      ctx.arena.begin_step(plan);
      call(o);
      ctx.arena.end_step();
      EXPECT_EQ(allocation_count(), allocations);
      EXPECT_EQ(compare_values(o.out.view(), reference(o, c), c, allowed(t, c)), "")
          << concat(t.in, " ", c.str());
    }
}

TEST(Linear, TheThreeProductsOfALayer) {
  Profile profile;
  Ctx ctx(2, "test");
  ctx.profile = &profile;
  for (const Types& t : kTypes) {
    const Case c{33, 65, 127};
    const TestTensor x(t.in, {c.m, c.k}, normals("x", c.m * c.k));
    const TestTensor w(t.in, {c.n, c.k}, normals("w", c.n * c.k));
    const TestTensor bias(t.in, {c.n}, normals("bias", c.n));
    const TestTensor dy(t.in, {c.m, c.n}, normals("dy", c.m * c.n));
    const TestTensor y(t.in, {c.m, c.n}), dx(t.in, {c.m, c.k}), dw(t.out, {c.n, c.k});
    linear_forward(ctx, *y, *x, *w, *bias);
    for (const bool accumulate : {false, true}) {
      linear_backward_input(ctx, *dx, *dy, *w, accumulate);
      linear_backward_weight(ctx, *dw, *dy, *x, accumulate);
    }
    const auto product = [](const ConstTensor& a, bool ta, const ConstTensor& b, bool tb,
                            const std::vector<double>& start, double times) {
      const std::vector<double> av = to_doubles(a), bv = to_doubles(b);
      const int64_t m = a.size(ta ? 1 : 0), k = a.size(ta ? 0 : 1), n = b.size(tb ? 0 : 1);
      std::vector<double> out(static_cast<size_t>(m * n));
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = start.empty() ? 0 : start[static_cast<size_t>(j)];
          for (int64_t p = 0; p < k; ++p)
            sum += times * av[static_cast<size_t>(ta ? p * m + i : i * k + p)] *
                   bv[static_cast<size_t>(tb ? j * k + p : p * n + j)];
          out[static_cast<size_t>(i * n + j)] = sum;
        }
      return out;
    };
    const DType sums = t.in == DType::kF64 ? DType::kF64 : DType::kF32;
    EXPECT_CLOSE(*y, product(*x, false, *w, true, to_doubles(*bias), 1),
                 tolerance(t.in, c.k, sums));
    EXPECT_CLOSE(*dx, product(*dy, false, *w, false, {}, 2), tolerance(t.in, c.n, sums));
    EXPECT_CLOSE(*dw, product(*dy, true, *x, false, {}, 2), tolerance(t.out, c.m, sums));
  }
  EXPECT_GT(profile.seconds(TimeCategory::kGemm), 0);
}

TEST(PackedWeight, MatchesThePlainProductForAnyNumberOfRows) {
  Ctx ctx(2, "test");
  for (const Types& t : kTypes)
    for (const auto [n, k] : {std::array<int64_t, 2>{33, 127}, {1, 7}, {200, 64}}) {
      for (const int64_t m : {1, 5, 64}) {
        const Case c{m, n, k, false, true, false, true};
        const Operands o(t, c);
        const PackedWeight packed = pack_weight(ctx, o.b.view());
        EXPECT_EQ(packed.rows(), n);
        EXPECT_EQ(packed.columns(), k);
        linear_forward_packed(ctx, o.out.view(), o.a.view(), packed, *o.bias);
        EXPECT_EQ(compare_values(o.out.view(), reference(o, c), c, allowed(t, c)), "")
            << concat(t.in, " ", c.str());
        EXPECT_TRUE(o.out.frame_intact());
      }
    }
}

TEST(PackedWeight, PlansItsScratch) {
  for (const Types& t : kTypes) {
    Ctx ctx(2, "test");
    const Case c{20, 70, 90, false, true, false, true};
    const Operands o(t, c);
    const PackedWeight packed = pack_weight(ctx, o.b.view());
    ctx.arena.begin_planning();
    linear_forward_packed(ctx, o.out.view(), o.a.view(), packed, *o.bias);
    const ArenaPlan plan = ctx.arena.end_planning();
    ctx.arena.reserve(plan.capacity);
    ctx.arena.begin_step(plan);
    linear_forward_packed(ctx, o.out.view(), o.a.view(), packed, *o.bias);
    ctx.arena.end_step();
    EXPECT_CLOSE(o.out.view(), reference(o, c), allowed(t, c));
  }
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(GemmErrors, NameTheOperandAndTheShapes) {
  Ctx ctx(1, "test");
  const TestTensor a(DType::kF32, {4, 6}), b(DType::kF32, {6, 5}), c(DType::kF32, {4, 5});
  const TestTensor half(DType::kBF16, {6, 5}), ids(DType::kI32, {4, 6}),
      more_ids(DType::kI32, {6, 5});
  const auto message = [&](const Tensor& out, const ConstTensor& x, const ConstTensor& y,
                           const GemmArgs& args = {}) {
    return message_of([&] { gemm(ctx, out, x, Transpose::kNo, y, Transpose::kNo, args); });
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos ? "" : text;
  };
  EXPECT_EQ(contains(message(*c, *a, *a), "op(A) is (4, 6), op(B) is (4, 6), C is (4, 5)"), "");
  EXPECT_EQ(contains(message(*a, *a, *b), "C is (4, 6)"), "");
  EXPECT_EQ(contains(message(*c, *a, *half), "A is float32, B is bfloat16"), "");
  EXPECT_EQ(contains(message(*c, *ids, *more_ids), "A is int32"), "");
  EXPECT_EQ(contains(message(*c, a->reshape({24}), *b), "A is (24), expected a matrix"), "");
  EXPECT_EQ(contains(message(*c, *a, *b, {.bias = a->slice(0, 0, 1).reshape({6})}),
                     "bias is (6), expected (5)"),
            "");
  const TestTensor bias(DType::kF32, {5});
  EXPECT_EQ(contains(message(*c, *a, *b, {.accumulate = true, .bias = *bias}),
                     "a bias is not supported with accumulate"),
            "");
  const Tensor columns(c->raw(), DType::kF32, {4, 2}, {5, 2});
  EXPECT_EQ(contains(message(columns, *a, *b), "C (4, 2) has column stride 2"), "");
  const TestTensor square(DType::kF32, {4, 4});
  EXPECT_EQ(contains(message(*square, *square, *square), "shares memory"), "");
  const TestTensor doubles(DType::kF64, {4, 4});
  EXPECT_EQ(contains(message(*square, *doubles, *doubles), "C is float32, A and B are float64"),
            "");
  EXPECT_EQ(contains(message_of([] { PackedWeight().rows(); }), "empty"), "");
}

TEST(Gemm, ColumnsOfOneMatrixMayBeOperandAndResult) {
  Ctx ctx(1, "test");
  const TestTensor all(DType::kF32, {20, 30}, normals("all", 600));
  const TestTensor w(DType::kF32, {10, 10}, normals("w", 100));
  const TestTensor want(DType::kF32, {20, 10});
  gemm(ctx, *want, all->slice(1, 0, 10), Transpose::kNo, *w, Transpose::kNo);
  gemm(ctx, all->slice(1, 10, 20), all->slice(1, 0, 10), Transpose::kNo, *w, Transpose::kNo);
  EXPECT_CLOSE(all->slice(1, 10, 20), to_doubles(*want), tolerance(DType::kF32, 10));
}

TEST(GemmLibrary, NamesItself) { EXPECT_EQ(gemm_library_version().rfind("oneDNN ", 0), 0u); }

// One row streams the weight, or is multiplied like several, as in batch-invariant products: a
// row's sum does not depend on the other rows, within Trireme's own tiles.
TEST(Gemm, ARowOfFewHasTheSameBitsBesideOthers) {
  constexpr int64_t kRows = 45, kColumns = 37, kTerms = 700;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TestTensor x(dtype, {kRows, kTerms}, normals("x", kRows * kTerms));
    const TestTensor w(dtype, {kColumns, kTerms}, normals("w", kColumns * kTerms));
    for_each_kernel([&](Ctx& ctx) {
      const auto each_alone = [&](bool batch_invariant) {
        TestTensor out(DType::kF32, {kRows, kColumns});
        ctx.gemm->batch_invariant = batch_invariant;
        for (int64_t i = 0; i < kRows; ++i)
          linear_forward(ctx, out->slice(0, i, i + 1), x->slice(0, i, i + 1), w, {});
        ctx.gemm->batch_invariant = false;
        return out;
      };
      TestTensor streamed = each_alone(false), tiled = each_alone(true);
      const auto is_ours = [&](int64_t m) {
        GemmProblem g;
        g.m = m;
        g.n = kColumns;
        g.k = kTerms;
        g.transpose_b = true;
        g.in = dtype;
        return gemm_path(gemm_processor(*ctx.gemm), g) == GemmPath::kFewRows;
      };
      EXPECT_TRUE(is_ours(8));
      for (int64_t m = 2; m <= kRows && is_ours(m); ++m) {
        TestTensor some(DType::kF32, {m, kColumns});
        linear_forward(ctx, some, x->slice(0, kRows - m, kRows), w, {});
        EXPECT_EQ(compare_exact(*some, tiled->slice(0, kRows - m, kRows)), "") << m;
      }
      return outputs(streamed);
    });
  }
}

}  // namespace
}  // namespace trireme::test::test_gemm
