// Segmented attention against plain attention: the same keys, in several calls.
#include <cmath>
#include <limits>

#include "engine/ops/attention/attention.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_attention_segments {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Sequences whose keys arrive in blocks: call c has keys [cuts[c], cuts[c + 1]) of every sequence.
struct Case {
  std::vector<int32_t> cu;
  std::vector<int32_t> cuts;
  int64_t heads, kv_heads, width;
  int64_t window = 0;
  double dropout = 0;
  int64_t tokens() const { return cu.back(); }
};

std::vector<Case> cases() {
  return {{{0, 130}, {0, 50, 51, 130}, 2, 1, 20},
          {{0, 1, 70, 70, 200}, {0, 64, 130}, 4, 2, 16},
          {{0, 90, 100}, {0, 30, 90}, 2, 2, 33, 25},
          {{0, 3, 75}, {0, 1, 2, 41, 75}, 2, 1, 8, 0, 0.25},
          {{0, 140}, {0, 140}, 1, 1, 64}};
}

// All operands; results start as NaN.
struct Operands {
  const Case& c;
  DType dtype, sum;
  TestTensor q, k, v, dout, global_index, positions;

  Operands(const Case& which, DType type)
      : c(which),
        dtype(type),
        sum(sum_dtype(type)),
        q(values("q", c.heads)),
        k(values("k", c.kv_heads)),
        v(values("v", c.kv_heads)),
        dout(values("dout", c.heads)),
        global_index({c.tokens()}, rows()),
        positions({c.tokens()}, positions_of()) {}

  AttentionArgs args() const {
    AttentionArgs a;
    a.scale = 1.0 / std::sqrt(static_cast<double>(c.width));
    a.window = c.window;
    a.dropout = c.dropout;
    a.key = {77, stream_id("segments")};
    a.global_index = global_index;
    return a;
  }
  TestTensor unset(DType type, const Shape& shape) const {
    return {type, shape, std::vector<double>(static_cast<size_t>(shape.numel()), std::nan(""))};
  }
  TestTensor unset(DType type, int64_t heads) const {
    return unset(type, Shape{c.tokens(), heads, c.width});
  }

 private:
  TestTensor values(const char* name, int64_t heads) const {
    return {dtype, {c.tokens(), heads, c.width}, normals(name, c.tokens() * heads * c.width)};
  }
  std::vector<int64_t> rows() const {
    std::vector<int64_t> r;
    for (int64_t t = 0; t < c.tokens(); ++t) r.push_back(7 * t + 3);
    return r;
  }
  std::vector<int32_t> positions_of() const {
    std::vector<int32_t> p;
    for (size_t n = 0; n + 1 < c.cu.size(); ++n)
      for (int32_t t = c.cu[n]; t < c.cu[n + 1]; ++t) p.push_back(t - c.cu[n]);
    return p;
  }
};

std::vector<AttentionSegment> segments_of_call(const Case& c, size_t call) {
  std::vector<AttentionSegment> out;
  for (size_t n = 0; n + 1 < c.cu.size(); ++n) {
    const int32_t length = c.cu[n + 1] - c.cu[n];
    const int32_t begin = std::min(c.cuts[call], length);
    const int32_t end = std::min(c.cuts[call + 1], length);
    if (begin == end) continue;
    out.push_back({c.cu[n], c.cu[n + 1], c.cu[n] + begin, c.cu[n] + end, -begin});
  }
  return out;
}

AttentionSegments view(const std::vector<AttentionSegment>& list, const Operands& x,
                       bool accumulate) {
  return {
      {list.data(), DType::kI32, Shape{std::ssize(list), kSegmentFields}}, x.positions, accumulate};
}

struct Results {
  TestTensor out, lse, dq, dk, dv;
};

Results plain(Ctx& ctx, const Operands& x) {
  const Case& c = x.c;
  Results r{x.unset(x.dtype, c.heads), x.unset(x.sum, {c.heads, c.tokens()}),
            x.unset(x.dtype, c.heads), x.unset(x.dtype, c.kv_heads), x.unset(x.dtype, c.kv_heads)};
  const TestTensor cu({std::ssize(c.cu)}, c.cu);
  attention_forward(ctx, r.out, r.lse, x.q, x.k, x.v, cu, cu, x.args());
  attention_backward(ctx, r.dq, r.dk, r.dv, x.dout, r.out, r.lse, x.q, x.k, x.v, cu, cu, x.args());
  return r;
}

// The backward gets `out` of the plain run, so that both differentiate at the same point.
Results segmented(Ctx& ctx, const Operands& x, const Tensor& out) {
  const Case& c = x.c;
  Results r{x.unset(x.sum, c.heads), x.unset(x.sum, {c.heads, c.tokens()}), x.unset(x.sum, c.heads),
            x.unset(x.sum, c.kv_heads), x.unset(x.sum, c.kv_heads)};
  for (size_t call = 0; call + 1 < c.cuts.size(); ++call) {
    const std::vector<AttentionSegment> list = segments_of_call(c, call);
    attention_segments_forward(ctx, r.out, r.lse, x.q, x.k, x.v, view(list, x, call > 0), x.args());
  }
  for (size_t call = 0; call + 1 < c.cuts.size(); ++call) {
    const std::vector<AttentionSegment> list = segments_of_call(c, call);
    attention_segments_backward(ctx, r.dq, r.dk, r.dv, x.dout, out, r.lse, x.q, x.k, x.v,
                                view(list, x, call > 0), x.args());
  }
  return r;
}

void expect_same(const Results& got, const Results& want, double tolerance) {
  const auto near = [&](const char* name, const TestTensor& a, const TestTensor& b) {
    EXPECT_LT(worst_relative(to_doubles(a), to_doubles(b)), tolerance) << name;
    EXPECT_TRUE(a.guards_intact()) << name;
  };
  near("out", got.out, want.out);
  near("lse", got.lse, want.lse);
  near("dq", got.dq, want.dq);
  near("dk", got.dk, want.dk);
  near("dv", got.dv, want.dv);
}

TEST(AttentionSegments, CallsAddUpToTheWhole) {
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const Case& c : cases())
      for (const DType dtype : kFloatTypes) {
        SCOPED_TRACE(concat(isa_name(isa), " ", dtype, " T ", c.tokens(), " D ", c.width));
        const Operands x(c, dtype);
        Ctx ctx(1, "test");
        const Results want = plain(ctx, x);
        const int64_t terms = c.width + c.tokens() * c.heads / c.kv_heads;
        expect_same(segmented(ctx, x, want.out), want, tolerance(dtype, terms).relative);
      }
  }
  set_active_isa(best_isa());
}

TEST(AttentionSegments, BitsDoNotDependOnThreads) {
  for (const Case& c : cases())
    for_each_kernel([&](Ctx& ctx) {
      const Operands x(c, DType::kBF16);
      const Results want = plain(ctx, x);
      Results r = segmented(ctx, x, want.out);
      return outputs(r.out, r.lse, r.dq, r.dk, r.dv);
    });
}

// Rows between segments are cleared by the starting call and kept by accumulating ones.
TEST(AttentionSegments, RowsOutsideAreClearedOrKept) {
  const Case c = cases()[0];
  const Operands x(c, DType::kF64);
  Ctx ctx(1, "test");
  const std::vector<AttentionSegment> list = {{5, 20, 3, 9, kWholeSegment}, {40, 41, 30, 60, -40}};
  const auto covered = [](int64_t t) { return t >= 5 && t < 20; };  // query 40 has no visible key
  const auto values = static_cast<size_t>(c.tokens() * c.heads * c.width);
  for (const bool accumulate : {false, true}) {
    const TestTensor out(DType::kF64, x.q->shape(), std::vector<double>(values, 0.5));
    const TestTensor lse(DType::kF64, {c.heads, c.tokens()},
                         std::vector<double>(static_cast<size_t>(c.heads * c.tokens()), 2.0));
    const TestTensor dq(DType::kF64, x.q->shape(), std::vector<double>(values, 0.5));
    const TestTensor dk(DType::kF64, x.k->shape(), std::vector<double>(values / 2, 0.5));
    const TestTensor dv(DType::kF64, x.k->shape(), std::vector<double>(values / 2, 0.5));
    const AttentionSegments segments = view(list, x, accumulate);
    attention_segments_forward(ctx, out, lse, x.q, x.k, x.v, segments, x.args());
    attention_segments_backward(ctx, dq, dk, dv, x.dout, out, lse, x.q, x.k, x.v, segments,
                                x.args());
    for (int64_t t = 0; t < c.tokens(); ++t) {
      const double kept = accumulate ? 0.5 : 0.0;
      const bool other_key = t < 3 || t >= 9;
      if (!covered(t)) {
        EXPECT_EQ(out->as<double>()[t * c.heads * c.width], kept);
        EXPECT_EQ(dq->as<double>()[t * c.heads * c.width], kept);
        EXPECT_EQ(lse->as<double>()[t], accumulate && t != 40 ? 2.0 : lse->as<double>()[t]);
      }
      EXPECT_EQ(dk->as<double>()[t * c.width] == kept, other_key) << t;
      EXPECT_EQ(dv->as<double>()[t * c.width] == kept, other_key) << t;
    }
    EXPECT_EQ(lse->as<double>()[0], accumulate ? 2.0 : -kInf);
    if (accumulate)
      EXPECT_NEAR(lse->as<double>()[40], 2.0, 1e-15);
    else
      EXPECT_EQ(lse->as<double>()[40], -kInf);
  }
}

TEST(AttentionSegments, NoSegmentsGiveNothing) {
  const Case c = cases()[0];
  const Operands x(c, DType::kBF16);
  Ctx ctx(2, "test");
  const TestTensor out = x.unset(x.sum, c.heads), lse = x.unset(x.sum, {c.heads, c.tokens()});
  attention_segments_forward(ctx, out, lse, x.q, x.k, x.v, view({}, x, false), x.args());
  for (const double value : to_doubles(out)) ASSERT_EQ(value, 0);
  for (const double value : to_doubles(lse)) ASSERT_EQ(value, -kInf);
}

// Dropout of a rank's heads equals that of the same heads in a call with all heads.
TEST(AttentionSegments, HeadsAreNumberedAmongAllHeads) {
  Case c = cases()[3];
  c.heads = c.kv_heads = 4;
  const Operands x(c, DType::kF64);
  Ctx ctx(1, "test");
  const Results whole = plain(ctx, x);
  const TestTensor cu({std::ssize(c.cu)}, c.cu);
  const TestTensor out(DType::kF64, {c.tokens(), 2, c.width}), lse(DType::kF64, {2, c.tokens()});
  AttentionArgs args = x.args();
  args.first_head = 2;
  args.total_heads = 4;
  const auto half = [](const Tensor& t) { return t.slice(1, 2, 4); };
  attention_forward(ctx, out, lse, half(x.q), half(x.k), half(x.v), cu, cu, args);
  EXPECT_EQ(to_doubles(out), to_doubles(half(whole.out)));
  args.total_heads = 3;
  EXPECT_THROW(attention_forward(ctx, out, lse, half(x.q), half(x.k), half(x.v), cu, cu, args),
               Error);
}

TEST(AttentionSegments, PlansTheSameScratchForAnyList) {
  const Case c = cases()[1];
  const Operands x(c, DType::kBF16);
  const auto plan = [&](size_t count) {
    Results r{x.unset(x.sum, c.heads), x.unset(x.sum, {c.heads, c.tokens()}),
              x.unset(x.sum, c.heads), x.unset(x.sum, c.kv_heads), x.unset(x.sum, c.kv_heads)};
    std::vector<AttentionSegment> list = segments_of_call(c, 0);
    list.resize(count);
    return expect_plannable(
               [&](Ctx& ctx) {
                 const AttentionSegments s = view(list, x, false);
                 attention_segments_forward(ctx, r.out, r.lse, x.q, x.k, x.v, s, x.args());
                 attention_segments_backward(ctx, r.dq, r.dk, r.dv, x.dout, x.q, r.lse, x.q, x.k,
                                             x.v, s, x.args());
               },
               {&r.out, &r.lse, &r.dq, &r.dk, &r.dv})
        .capacity;
  };
  EXPECT_EQ(plan(0), plan(3));
}

TEST(AttentionSegments, RefusesListsThatDoNotFit) {
  const Case c = cases()[3];
  const Operands x(c, DType::kF32);
  Ctx ctx(1, "test");
  const auto run = [&](const std::vector<AttentionSegment>& list, DType result = DType::kF32) {
    const TestTensor out = x.unset(result, c.heads), lse = x.unset(x.sum, {c.heads, c.tokens()});
    attention_segments_forward(ctx, out, lse, x.q, x.k, x.v, view(list, x, false), x.args());
  };
  EXPECT_NO_THROW(run({{0, 5, 0, 5, 0}, {5, 9, 7, 9, 0}}));
  EXPECT_THROW(run({{0, 5, 0, 5, 0}, {4, 9, 7, 9, 0}}), Error);  // overlap in queries
  EXPECT_THROW(run({{0, 5, 0, 5, 0}, {5, 9, 4, 9, 0}}), Error);  // in keys
  EXPECT_THROW(run({{5, 5, 0, 5, 0}}), Error);                   // empty
  EXPECT_THROW(run({{0, 76, 0, 5, 0}}), Error);                  // beyond the last query
  EXPECT_THROW(run({{0, 5, 0, 76, 0}}), Error);
  EXPECT_THROW(run({{-1, 5, 0, 5, 0}}), Error);
  EXPECT_THROW(run({{0, 5, 0, 5, 0}}, DType::kF64), Error);
  x.positions->as<int32_t>()[3] = -1;
  EXPECT_THROW(run({{0, 5, 0, 5, 0}}), Error);
}

}  // namespace
}  // namespace trireme::test::test_attention_segments
