#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/attention/attention.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_attention {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  std::vector<int32_t> cu_q, cu_k;
  int64_t heads, kv_heads, width;
  AttentionArgs args = {};
  int64_t padding = 0;  // rows after the last sequence
  bool packed = false;  // q, k, v are slices of one (T, H + 2 Hkv, D) tensor

  int64_t tokens() const { return cu_q.back() + padding; }
  int64_t keys() const { return cu_k.back() + padding; }
  int64_t sequences() const { return std::ssize(cu_q) - 1; }
};

Case self_attention(std::vector<int32_t> cu, int64_t heads, int64_t kv_heads, int64_t width) {
  Case c{cu, cu, heads, kv_heads, width};
  c.args.scale = 1.0 / std::sqrt(static_cast<double>(width));
  return c;
}

// Operands of one case in one dtype, and memory for every result, initialized with NaN.
struct Operands {
  const Case& c;
  DType dtype, compute;
  TestTensor qkv, q_own, k_own, v_own, dout, out, lse, dq, dk, dv, cu_q, cu_k, global_index;
  Tensor q, k, v;

  Operands(const Case& which, DType type)
      : c(which),
        dtype(type),
        compute(type == DType::kF64 ? DType::kF64 : DType::kF32),
        qkv(values("qkv", c.tokens(), c.packed ? c.heads + 2 * c.kv_heads : 0)),
        q_own(values("q", c.tokens(), c.heads)),
        k_own(values("k", c.keys(), c.kv_heads)),
        v_own(values("v", c.keys(), c.kv_heads)),
        dout(values("dout", c.tokens(), c.heads)),
        out(unset(type, {c.tokens(), c.heads, c.width})),
        lse(unset(compute, {c.heads, c.tokens()})),
        dq(unset(type, {c.tokens(), c.heads, c.width})),
        dk(unset(type, {c.keys(), c.kv_heads, c.width})),
        dv(unset(type, {c.keys(), c.kv_heads, c.width})),
        cu_q({std::ssize(c.cu_q)}, c.cu_q),
        cu_k({std::ssize(c.cu_k)}, c.cu_k),
        global_index({c.tokens()}, rows()),
        q(c.packed ? qkv->slice(1, 0, c.heads) : *q_own),
        k(c.packed ? qkv->slice(1, c.heads, c.heads + c.kv_heads) : *k_own),
        v(c.packed ? qkv->slice(1, c.heads + c.kv_heads, c.heads + 2 * c.kv_heads) : *v_own) {}

  AttentionArgs args() const {
    AttentionArgs a = c.args;
    a.global_index = global_index;
    return a;
  }
  void forward(Ctx& ctx) { attention_forward(ctx, out, lse, q, k, v, cu_q, cu_k, args()); }
  void backward(Ctx& ctx) {
    attention_backward(ctx, dq, dk, dv, dout, out, lse, q, k, v, cu_q, cu_k, args());
  }
  bool guards_intact() const {
    for (const TestTensor* t : {&out, &lse, &dq, &dk, &dv})
      if (!t->guards_intact()) return false;
    return true;
  }

 private:
  TestTensor values(const char* name, int64_t rows_wanted, int64_t heads) const {
    return {dtype, {rows_wanted, heads, c.width}, normals(name, rows_wanted * heads * c.width)};
  }
  static TestTensor unset(DType type, const Shape& shape) {
    const auto n = static_cast<size_t>(shape.numel());
    return {type, shape, std::vector<double>(n, std::nan(""))};
  }
  std::vector<int64_t> rows() const {
    std::vector<int64_t> r;
    for (int64_t t = 0; t < c.tokens(); ++t) r.push_back(1'000'003 * (t + 1));
    return r;
  }
};

// A sum, and the sum of its terms' absolute values.
struct Sums {
  std::vector<double> value, magnitude;
  explicit Sums(size_t n) : value(n), magnitude(n) {}
  void add(size_t i, double factor, double term, double term_magnitude) {
    value[i] += factor * term;
    magnitude[i] += std::abs(factor) * term_magnitude;
  }
  void add(size_t i, double factor, double term) { add(i, factor, term, std::abs(term)); }
};

// The formulas of attention.h, query by query in float64.
struct Reference {
  Sums out, dq, dk, dv;
  std::vector<double> lse;
};

double keep_factor(const Case& c, int64_t global_index, int64_t head, int64_t key) {
  if (c.args.dropout == 0) return 1;
  const auto index = static_cast<uint64_t>(((global_index * c.heads + head) << 24) + key);
  const bool keep = uniform_from_word(philox_word(c.args.key, index)) >= c.args.dropout;
  return keep ? 1 / (1 - c.args.dropout) : 0;
}

// Query t of head h with the keys [begin, end) of head kv of its sequence, whose first row is k0.
struct Query {
  int64_t t, h, kv, k0, begin, end;
};

// Values as doubles, in the order (row, head, d).
struct Values {
  std::vector<double> q, k, v, dout, out;
};

void add_query(Reference& r, const Case& c, const Values& x, int64_t global_index,
               const Query& at) {
  const auto width = static_cast<size_t>(c.width);
  const size_t tq = static_cast<size_t>(at.t * c.heads + at.h) * width;
  const auto key_row = [&](int64_t j) {
    return static_cast<size_t>((at.k0 + j) * c.kv_heads + at.kv) * width;
  };
  const auto dot = [&](const std::vector<double>& a, size_t i, const std::vector<double>& b,
                       size_t j) {
    Sums sum(1);
    for (size_t d = 0; d < width; ++d) sum.add(0, a[i + d], b[j + d]);
    return std::pair(sum.value[0], sum.magnitude[0]);
  };
  // Scores, and the slopes of their soft cap.
  std::vector<double> score, slope;
  const double cap = c.args.soft_cap;
  for (int64_t j = at.begin; j < at.end; ++j) {
    const double plain = c.args.scale * dot(x.q, tq, x.k, key_row(j)).first;
    score.push_back(cap > 0 ? cap * std::tanh(plain / cap) : plain);
    slope.push_back(cap > 0 ? 1 - score.back() / cap * (score.back() / cap) : 1);
  }
  const double maximum = std::ranges::max_element(score)[0];
  double total = 0;
  for (double s : score) total += std::exp(s - maximum);
  const double lse = maximum + std::log(total);
  r.lse[static_cast<size_t>(at.h * c.tokens() + at.t)] = lse;
  const auto [delta, delta_size] = dot(x.dout, tq, x.out, tq);
  for (int64_t j = at.begin; j < at.end; ++j) {
    const size_t tk = key_row(j);
    const double p = std::exp(score[static_cast<size_t>(j - at.begin)] - lse);
    const double keep = keep_factor(c, global_index, at.h, j);
    const auto [dp, dp_size] = dot(x.dout, tq, x.v, tk);
    const double steep = slope[static_cast<size_t>(j - at.begin)];
    const double ds = steep * (keep * dp - delta), ds_size = keep * dp_size + delta_size;
    for (size_t d = 0; d < width; ++d) {
      r.out.add(tq + d, p * keep, x.v[tk + d]);
      r.dv.add(tk + d, p * keep, x.dout[tq + d]);
      r.dq.add(tq + d, c.args.scale * p * x.k[tk + d], ds, ds_size);
      r.dk.add(tk + d, c.args.scale * p * x.q[tq + d], ds, ds_size);
    }
  }
}

// The backward reference uses the op's own output, rounded to its dtype.
Reference reference(const Operands& x) {
  const Case& c = x.c;
  const Values values{to_doubles(x.q), to_doubles(x.k), to_doubles(x.v), to_doubles(x.dout),
                      to_doubles(x.out)};
  Reference r{Sums(values.q.size()), Sums(values.q.size()), Sums(values.k.size()),
              Sums(values.k.size()),
              std::vector<double>(static_cast<size_t>(x.lse->numel()), -kInf)};
  for (int64_t n = 0; n < c.sequences(); ++n)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int32_t t = c.cu_q[size_t(n)]; t < c.cu_q[size_t(n) + 1]; ++t) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        const int64_t k0 = c.cu_k[size_t(n)], keys = c.cu_k[size_t(n) + 1] - k0;
        const int64_t last_query = c.cu_q[size_t(n) + 1] - 1;
        const int64_t end = c.args.causal ? keys - (last_query - t) : keys;
        const int64_t begin = c.args.window > 0 ? std::max<int64_t>(0, end - c.args.window) : 0;
        if (begin >= end) continue;
        add_query(r, c, values, x.global_index->as<int64_t>()[t], {t, h, kv, k0, begin, end});
      }
  return r;
}

// Exact for -inf, close elsewhere.
void expect_lse(const Tensor& got, const std::vector<double>& want, Tolerance tol) {
  const std::vector<double> values = to_doubles(got);
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (std::isinf(want[i]))
      EXPECT_EQ(values[i], want[i]) << "lse[" << i << "]";
    else
      EXPECT_NEAR(values[i], want[i], tol.relative * std::max(1.0, std::abs(want[i])));
}

void expect_close(const Operands& x) {
  const Case& c = x.c;
  SCOPED_TRACE(concat(x.dtype, " T ", c.tokens(), " Tk ", c.keys(), " H ", c.heads, "/", c.kv_heads,
                      " D ", c.width, " window ", c.args.window, " dropout ", c.args.dropout,
                      " soft cap ", c.args.soft_cap));
  const Reference want = reference(x);
  // The longest chain of sums: over D for a score, then over keys or over the group's queries.
  const int64_t terms = c.width + std::max(c.keys(), c.tokens() * c.heads / c.kv_heads);
  const Tolerance tol = tolerance(x.dtype, terms);
  const auto close = [&](const Tensor& got, const Sums& sums) {
    EXPECT_EQ(compare_within(got, sums.value, sums.magnitude, tol), "");
  };
  close(x.out, want.out);
  close(x.dq, want.dq);
  close(x.dk, want.dk);
  close(x.dv, want.dv);
  expect_lse(x.lse, want.lse, tolerance(x.compute, terms));
  EXPECT_TRUE(x.guards_intact());
}

void run_and_check(const Case& c, DType dtype, int threads = 1) {
  Ctx ctx(threads, "test");
  Operands x(c, dtype);
  x.forward(ctx);
  x.backward(ctx);
  expect_close(x);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int64_t width : {1, 8, 33, 48, 64, 128})
    all.push_back(self_attention({0, 7, 8, 8, 41}, 2, 1, width));
  all.push_back(self_attention({0, 1}, 1, 1, 7));
  all.push_back(self_attention({0, 127}, 2, 2, 16));
  all.push_back(self_attention({0, 64, 192}, 4, 2, 32));
  all.push_back(self_attention({0, 200}, 6, 2, 20));
  all.push_back(self_attention({0, 70}, 1, 1, 256));

  Case window = self_attention({0, 150, 161}, 2, 1, 24);
  for (int64_t w : {1, 5, 64, 100, 1000}) {
    window.args.window = w;
    all.push_back(window);
  }
  Case padded = self_attention({0, 9, 50}, 3, 3, 40);
  padded.padding = 5;
  padded.packed = true;
  all.push_back(padded);
  // Queries that continue a longer past; few queries; more queries than keys; no queries; no keys.
  for (int64_t group : {1, 4}) {
    Case mixed = self_attention({0, 1, 3, 7, 29, 34, 34, 38}, 2 * group, 2, 64);
    mixed.cu_k = {0, 150, 195, 199, 264, 266, 275, 275};
    all.push_back(mixed);
    mixed.args.window = 70;
    all.push_back(mixed);
  }
  Case full = self_attention({0, 3, 90}, 2, 1, 32);
  full.args.causal = false;
  all.push_back(full);
  Case dropped = self_attention({0, 2, 75}, 2, 1, 16);
  dropped.args.dropout = 0.25;
  dropped.args.key = {77, stream_id("attention")};
  all.push_back(dropped);
  const std::vector<Case> plain = all;
  for (const double cap : {0.7, 50.0})
    for (const size_t n :
         {size_t{3}, size_t{12}, plain.size() - 1, plain.size() - 2, plain.size() - 4}) {
      all.push_back(plain[n]);
      all.back().args.soft_cap = cap;
    }
  return all;
}

TEST(Attention, MatchesTheReference) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    set_active_isa(isa);
    for (const Case& c : cases())
      for (const DType dtype : kFloatTypes) run_and_check(c, dtype);
  }
  set_active_isa(best_isa());
}

// A sequence longer than the key gradients that one thread sums alone.
TEST(Attention, VeryLongSequence) {
  Case c = self_attention({0, 70}, 2, 1, 4);
  c.cu_k = {0, 8'300};
  for (const int threads : {1, 2}) run_and_check(c, DType::kF32, threads);
}

TEST(Attention, LargeScoresStayFinite) {
  Case c = self_attention({0, 80}, 2, 2, 16);
  c.args.scale = 300;  // scores of several thousand: all but one probability vanish
  Ctx ctx(1, "test");
  Operands x(c, DType::kF64);
  x.forward(ctx);
  x.backward(ctx);
  const Reference want = reference(x);
  // The rounding error of a score is amplified by its exponential.
  const Tolerance tol{1e4 * tolerance(DType::kF64, 96).relative};
  EXPECT_EQ(compare_within(x.out, want.out.value, want.out.magnitude, tol), "");
  EXPECT_EQ(compare_within(x.dv, want.dv.value, want.dv.magnitude, tol), "");
}

TEST(Attention, GradientsAreTheDerivativeOfTheForward) {
  std::vector<Case> all = {self_attention({0, 3, 12}, 2, 1, 5)};
  all.push_back(all[0]);
  all.back().args.window = 4;
  all.push_back(all[0]);
  all.back().args.dropout = 0.3;
  all.back().args.key = {5, stream_id("fd")};
  all.push_back(all[0]);
  all.back().cu_k = {0, 2, 16};  // queries without keys in the first sequence
  all.push_back(all[1]);
  all.back().args.soft_cap = 0.8;
  for (const Case& c : all) {
    Ctx ctx(1, "test");
    Operands x(c, DType::kF64);
    x.forward(ctx);
    x.backward(ctx);
    const std::vector<double> dout = to_doubles(x.dout);
    const auto gradient_of = [&](const Tensor& operand) {
      const std::vector<double> start = to_doubles(operand);
      Operands moved(c, DType::kF64);
      const auto f = [&](const std::vector<double>& values) {
        std::ranges::copy(values, operand.as<double>());
        attention_forward(ctx, moved.out, moved.lse, x.q, x.k, x.v, x.cu_q, x.cu_k, x.args());
        return to_doubles(moved.out);
      };
      const std::vector<double> gradient = finite_difference_gradient(f, start, dout);
      std::ranges::copy(start, operand.as<double>());
      return gradient;
    };
    EXPECT_LT(worst_relative(to_doubles(x.dq), gradient_of(x.q)), finite_difference_tolerance());
    EXPECT_LT(worst_relative(to_doubles(x.dk), gradient_of(x.k)), finite_difference_tolerance());
    EXPECT_LT(worst_relative(to_doubles(x.dv), gradient_of(x.v)), finite_difference_tolerance());
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  const std::vector<Case> all = cases();
  std::vector<Case> few = {all[2], all.back(), all[all.size() - 3], all[all.size() - 8]};
  few.push_back(self_attention({0, 300}, 2, 1, 32));  // divided by heads or by blocks
  for (const Case& c : few)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for_each_kernel([&](Ctx& ctx) {
        Operands x(c, dtype);
        x.forward(ctx);
        x.backward(ctx);
        if (ctx.threads == 1) expect_close(x);
        std::vector<TestTensor> outputs;
        for (TestTensor* t : {&x.out, &x.lse, &x.dq, &x.dk, &x.dv})
          outputs.push_back(std::move(*t));
        return outputs;
      });
}

// The second of two packed sequences has the same bits when computed alone.
TEST(Attention, BitsDoNotDependOnTheNeighbours) {
  const Case both = self_attention({0, 45, 128}, 2, 1, 24);
  Ctx ctx(1, "test");
  Operands x(both, DType::kBF16);
  x.forward(ctx);
  x.backward(ctx);
  const int64_t rows = 128 - 45;
  const auto tail = [&](const Tensor& t) { return t.slice(0, 45, 128); };
  const TestTensor out(DType::kBF16, {rows, 2, 24}), lse(DType::kF32, {2, rows});
  const TestTensor dq(DType::kBF16, {rows, 2, 24});
  const TestTensor dk(DType::kBF16, {rows, 1, 24}), dv(DType::kBF16, {rows, 1, 24});
  const TestTensor cu({2}, std::vector<int32_t>{0, static_cast<int32_t>(rows)});
  attention_forward(ctx, out, lse, tail(x.q), tail(x.k), tail(x.v), cu, cu, both.args);
  attention_backward(ctx, dq, dk, dv, tail(x.dout), out, lse, tail(x.q), tail(x.k), tail(x.v), cu,
                     cu, both.args);
  EXPECT_SAME_BITS(*out, tail(x.out));
  EXPECT_SAME_BITS(*dq, tail(x.dq));
  EXPECT_SAME_BITS(*dk, tail(x.dk));
  EXPECT_SAME_BITS(*dv, tail(x.dv));
}

// Rows of V are unit vectors, so that the output row is the probabilities themselves.
TEST(Attention, DropoutKeepsExactlyTheWordsOfItsKey) {
  constexpr int64_t kKeys = 256;
  Case c = self_attention({0, kKeys}, 2, 1, kKeys);
  c.args.causal = false;
  c.args.dropout = 0.2;
  c.args.key = {123, stream_id("mask")};
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Ctx ctx(1, "test");
    Operands x(c, dtype);
    std::vector<double> unit(static_cast<size_t>(kKeys * kKeys));
    for (size_t j = 0; j < kKeys; ++j) unit[j * kKeys + j] = 1;
    const TestTensor v(dtype, {kKeys, 1, kKeys}, unit);
    attention_forward(ctx, x.out, x.lse, x.q, x.k, v, x.cu_q, x.cu_k, x.args());
    const std::vector<double> out = to_doubles(x.out);
    int64_t kept = 0, wrong = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto key = static_cast<int64_t>(i) % kKeys, head = static_cast<int64_t>(i) / kKeys % 2;
      const int64_t row = x.global_index->as<int64_t>()[static_cast<int64_t>(i) / kKeys / 2];
      wrong += (out[i] != 0) != (keep_factor(c, row, head, key) != 0);
      kept += out[i] != 0;
    }
    EXPECT_EQ(wrong, 0);
    const double n = static_cast<double>(out.size()), sigma = std::sqrt(n * 0.2 * 0.8);
    EXPECT_NEAR(static_cast<double>(kept), 0.8 * n, 5 * sigma);
  }
}

TEST(Attention, PlanningTakesTheSameScratchAndReadsNothing) {
  const Case c = self_attention({0, 30, 170}, 4, 2, 24);
  Operands x(c, DType::kBF16);
  Operands direct(c, DType::kBF16);
  Ctx plain(2, "plain");
  direct.forward(plain);
  direct.backward(plain);

  Ctx ctx(2, "planned");
  ctx.arena.begin_planning();
  {
    // Every operand is an allocation of the planning run: reading its address faults.
    const auto fake = [&](const ConstTensor& t) {
      return ctx.allocate("operand", t.dtype(), t.shape());
    };
    const Activation q = fake(x.q), k = fake(x.k), v = fake(x.v), out = fake(x.out);
    const Activation lse = fake(x.lse), cu_q = fake(x.cu_q), cu_k = fake(x.cu_k);
    attention_forward(ctx, out, lse, q, k, v, cu_q, cu_k, c.args);
    attention_backward(ctx, q, k, v, out, out, lse, q, k, v, cu_q, cu_k, c.args);
  }
  ctx.arena.end_planning();

  ctx.arena.begin_planning();
  x.forward(ctx);
  x.backward(ctx);
  const ArenaPlan plan = ctx.arena.end_planning();
  ctx.arena.reserve(plan.capacity);
  for (int step = 0; step < 2; ++step) {
    ctx.arena.begin_step(plan);
    x.forward(ctx);
    x.backward(ctx);
    ctx.arena.end_step();
    EXPECT_SAME_BITS(x.out, direct.out);
    EXPECT_SAME_BITS(x.dk, direct.dk);
  }
}

TEST(Attention, RefusesOperandsThatDoNotFit) {
  const Case c = self_attention({0, 5, 9}, 4, 2, 8);
  Ctx ctx(1, "test");
  const auto run = [&](auto&& change) {
    Operands x(c, DType::kF32);
    AttentionArgs args = x.args();
    change(x, args);
    attention_forward(ctx, x.out, x.lse, x.q, x.k, x.v, x.cu_q, x.cu_k, args);
  };
  EXPECT_NO_THROW(run([](Operands&, AttentionArgs&) {}));
  EXPECT_THROW(run([](Operands& x, AttentionArgs&) { x.k = x.k.slice(0, 0, 8); }), Error);
  EXPECT_THROW(run([](Operands& x, AttentionArgs&) { x.q = x.q.slice(1, 0, 3); }), Error);
  EXPECT_THROW(run([](Operands& x, AttentionArgs&) { x.q = x.q.slice(2, 0, 7); }), Error);
  EXPECT_THROW(run([](Operands& x, AttentionArgs&) { x.cu_q->as<int32_t>()[0] = 1; }), Error);
  EXPECT_THROW(run([](Operands& x, AttentionArgs&) { x.cu_k->as<int32_t>()[1] = 10; }), Error);
  EXPECT_THROW(run([](Operands& x, AttentionArgs&) { x.cu_q->as<int32_t>()[2] = 10; }), Error);
  EXPECT_THROW(run([](Operands&, AttentionArgs& a) { a.window = -1; }), Error);
  EXPECT_THROW(run([](Operands&, AttentionArgs& a) { a.dropout = 1; }), Error);
  EXPECT_THROW(run([](Operands&, AttentionArgs& a) { a.scale = kInf; }), Error);
  EXPECT_THROW(run([](Operands&, AttentionArgs& a) {
                 a.dropout = 0.5;
                 a.global_index = ConstTensor();
               }),
               Error);
}

TEST(Attention, RefusesALengthThatSequencesDoNotHave) {
  Ctx ctx(1, "test");
  const auto run = [&](std::vector<int32_t> offsets, int64_t length) {
    const auto attention = self_attention(std::move(offsets), 4, 2, 8);  // which x references
    Operands x(attention, DType::kF32);
    AttentionArgs args = x.args();
    args.uniform_length = length;
    attention_forward(ctx, x.out, x.lse, x.q, x.k, x.v, x.cu_q, x.cu_k, args);
  };
  EXPECT_NO_THROW(run({0, 3, 6}, 3));
  EXPECT_THROW(run({0, 3, 6}, 2), Error);
  EXPECT_THROW(run({0, 3, 6}, -3), Error);
  EXPECT_THROW(run({0, 4, 6}, 3), Error);
}

}  // namespace
}  // namespace trireme::test::test_attention
