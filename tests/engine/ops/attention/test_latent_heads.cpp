#include "engine/ops/attention/latent_heads.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_latent_heads {
namespace {

using Values = std::vector<double>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct Sizes {
  int64_t tokens, heads, nope, rope, value;
  int64_t width() const { return nope + rope; }
  int64_t both() const { return nope + value; }
};
const std::vector<Sizes> kSizes = {
    {5, 3, 6, 4, 7}, {1, 1, 0, 2, 2}, {9, 4, 16, 8, 16}, {3, 2, 33, 34, 0}};

TEST(LatentHeads, PlacesTheLatentsPartsInEveryHead) {
  for (DType dtype : kFloatTypes)
    for (const Sizes& s : kSizes) {
      const Shape heads{s.tokens, s.heads, s.width()};
      const Values kv = stored(dtype, normals("kv", s.tokens * s.heads * s.both()));
      const Values rope = stored(dtype, normals("rope", s.tokens * s.rope));
      Values k, v;
      for (int64_t head = 0; head < s.tokens * s.heads; ++head)
        for (int64_t d = 0; d < s.width(); ++d) {
          const int64_t from = head * s.both();
          k.push_back(d < s.nope ? kv[at(from + d)]
                                 : rope[at(head / s.heads * s.rope + d - s.nope)]);
          v.push_back(d < s.value ? kv[at(from + s.nope + d)] : 0.0);
        }
      const TestTensor t_kv(dtype, {s.tokens, s.heads, s.both()}, kv);
      const TestTensor t_rope(dtype, {s.tokens, s.rope}, rope), want_k(dtype, heads, k),
          want_v(dtype, heads, v);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor out_k(dtype, heads, Values(k.size(), 7.0)),
            out_v(dtype, heads, Values(v.size(), 7.0));
        latent_heads_forward(ctx, out_k, out_v, t_kv, t_rope);
        EXPECT_SAME_BITS(out_k, want_k);
        EXPECT_SAME_BITS(out_v, want_v);
        return outputs(out_k, out_v);
      });
    }
}

TEST(LatentHeads, SumsTheKeysOfAllHeads) {
  for (DType dtype : kFloatTypes)
    for (const Sizes& s : kSizes) {
      const Shape heads{s.tokens, s.heads, s.width()};
      const Values dk = stored(dtype, normals("dk", heads.numel()));
      const Values dv = stored(dtype, normals("dv", heads.numel()));
      Values d_kv, d_rope(at(s.tokens * s.rope), 0.0), magnitude = d_rope;
      for (int64_t head = 0; head < s.tokens * s.heads; ++head) {
        const int64_t from = head * s.width();
        for (int64_t d = 0; d < s.nope; ++d) d_kv.push_back(dk[at(from + d)]);
        for (int64_t d = 0; d < s.value; ++d) d_kv.push_back(dv[at(from + d)]);
        for (int64_t d = 0; d < s.rope; ++d) {
          d_rope[at(head / s.heads * s.rope + d)] += dk[at(from + s.nope + d)];
          magnitude[at(head / s.heads * s.rope + d)] += std::abs(dk[at(from + s.nope + d)]);
        }
      }
      const TestTensor t_dk(dtype, heads, dk), t_dv(dtype, heads, dv);
      const TestTensor want(dtype, {s.tokens, s.heads, s.both()}, d_kv);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor out(dtype, {s.tokens, s.heads, s.both()}), out_rope(dtype, {s.tokens, s.rope});
        latent_heads_backward(ctx, out, out_rope, t_dk, t_dv);
        EXPECT_SAME_BITS(out, want);
        EXPECT_WITHIN(out_rope, d_rope, magnitude, tolerance(dtype, s.heads));
        return outputs(out, out_rope);
      });
    }
}

// Refuses values wider than keys, and a latent with another number of tokens than the keys.
TEST(LatentHeads, RefusesSizesThatDoNotFit) {
  Ctx ctx(1, "test");
  TestTensor k(DType::kF32, {2, 3, 6}), v(DType::kF32, {2, 3, 6});
  const TestTensor rope(DType::kF32, {2, 2}), wide(DType::kF32, {2, 3, 11}),
      other(DType::kF32, {1, 3, 8});
  EXPECT_THROW(latent_heads_forward(ctx, k, v, wide, rope), Error);
  EXPECT_THROW(latent_heads_forward(ctx, k, v, other, rope), Error);
}

}  // namespace
}  // namespace trireme::test::test_latent_heads
