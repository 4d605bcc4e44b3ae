#include <gtest/gtest.h>

#include "parallel/context/context_plan.h"
#include "tests/parallel/context/context_case.h"

namespace trireme::test::test_context_plan {
namespace {

// The steps of a ring, computed in one process from the plan; one of them may be left out.
std::vector<double> steps_of_rank(const ContextCase& c, const ContextLayout& layout, int rank,
                                  int left_out) {
  ContextPlan plan(layout, rank, 1);
  plan.build(c.cu, {});
  const auto held = [&](const std::string& name, int holder, int64_t heads) {
    const std::vector<double> all = values_of(c, name, DType::kF64);
    std::vector<double> mine;
    for (const int64_t t : tokens_of_rank(layout, holder))
      for (int64_t i = 0; i < heads * c.width; ++i)
        mine.push_back(t < 0 ? 0 : all[static_cast<size_t>(t * heads * c.width + i)]);
    return TestTensor(DType::kF64, {layout.local_tokens(), heads, c.width}, mine);
  };
  const TestTensor q = held("q", rank, c.heads);
  const TestTensor out(DType::kF64, {layout.local_tokens(), c.heads, c.width});
  const TestTensor lse(DType::kF64, {c.heads, layout.local_tokens()});
  Ctx ctx(1, "steps");
  for (int t = 0; t < layout.ranks; ++t) {
    if (t == left_out) continue;
    const int source = (rank - t + layout.ranks) % layout.ranks;
    attention_segments_forward(ctx, out, lse, q, held("k", source, c.kv_heads),
                               held("v", source, c.kv_heads), plan.step(t), args_of(c));
  }
  return to_doubles(out);
}

TEST(ContextPlan, WithoutOneStepTheResultIsWrong) {
  const ContextCase c = packed(1, 64, {});  // one document: every step brings keys
  const ContextLayout layout = make_context_layout(1, 64, 4, 1, ContextBalance::kZigzag);
  const std::vector<double> whole = attend_alone(c, DType::kF64).out;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<double> want;
    for (const int64_t t : tokens_of_rank(layout, rank))
      for (int64_t i = 0; i < c.heads * c.width; ++i)
        want.push_back(whole[static_cast<size_t>(t * c.heads * c.width + i)]);
    EXPECT_LT(worst_relative(steps_of_rank(c, layout, rank, -1), want), 1e-12);
    for (int left_out = 1; left_out < 4; ++left_out)
      EXPECT_GT(worst_relative(steps_of_rank(c, layout, rank, left_out), want), 1e-3);
  }
}

}  // namespace
}  // namespace trireme::test::test_context_plan
