// The guarantee: every layout gives the loss, the gradients and the gradient norm of one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/layouts/routing_margin.h"
#include "tests/layouts/shard_bytes.h"

namespace trireme::test::test_layouts {
namespace {

// One-rank results, by the options that affect them.
const LayoutResult& reference(const LayoutCase& c) {
  static std::map<std::string, LayoutResult> known;
  const LayoutCase one = reference_of(c);
  const auto [at, fresh] = known.try_emplace(one.name());
  if (fresh) at->second = run_layout(one);
  return at->second;
}

void expect_equal(const LayoutCase& c) {
  const LayoutResult& want = reference(c);
  EXPECT_GE(want.routing_margin, required_routing_margin(c.dtype)) << reference_of(c).name();
  const LayoutResult got = run_layout(c);
  EXPECT_EQ(layout_difference(got, want, c.dtype), "") << c.name();
  EXPECT_EQ(stored_difference(got, config_of(c)), "") << c.name();
  EXPECT_EQ(silent_group(got, config_of(c)), "") << c.name();
}

TEST(Layouts, TheReferenceLearnsAndIsItself) {
  LayoutCase c;
  const LayoutResult& one = reference(c);
  EXPECT_LT(one.losses.back(), one.losses.front());
  const LayoutResult again = run_layout(c);
  EXPECT_EQ(again.losses, one.losses);
  EXPECT_EQ(again.gradients, one.gradients);
}

TEST(Layouts, ASampleEqualsOneRank) {
  for (const LayoutCase& c : sample_cases(all_cases(8), 24, 1)) expect_equal(c);
}

// Context-parallel attention with all features combined.
TEST(Layouts, EveryExchangeOfContextRanksEqualsOneRank) {
  for (const LayoutCase& c : all_cases(8))
    if (c.sizes.cp > 1 && c.sizes.dp * c.sizes.pp == 1 && c.schedule == "1f1b" && c.packed &&
        c.dropout && c.recompute == Recompute::kSelective && c.offload == OffloadDevice::kNone &&
        c.variant != "qwen2" && c.variant != "gemma2" && c.variant != "gemma3" &&
        c.variant != "granite" && c.variant != "glm4" &&
        (c.llama ? c.sizes.tp == 2 && c.sizes.sequence_parallel : c.sizes.tp == 1))
      expect_equal(c);
}

TEST(Layouts, ASampleWithExpertsEqualsOneRank) {
  for (const LayoutCase& c : sample_cases(expert_cases(8), 16, 2)) expect_equal(c);
}

// A parallel dimension that is ignored: the results would be correct, the bytes and the groups are
// not.
TEST(Layouts, AnIgnoredDimensionIsNoticed) {
  LayoutCase c;
  const LayoutResult one = run_layout(c);
  EXPECT_EQ(stored_difference(one, config_of(c)), "");
  EXPECT_EQ(silent_group(one, config_of(c)), "");
  for (int ParallelSizes::*dim :
       {&ParallelSizes::tp, &ParallelSizes::pp, &ParallelSizes::cp, &ParallelSizes::dp}) {
    LayoutCase claimed = c;
    claimed.sizes.*dim = 2;
    LayoutResult ignored = one;
    ignored.stored.assign(2, one.stored[0]);
    const bool divides = dim == &ParallelSizes::tp || dim == &ParallelSizes::pp;
    EXPECT_EQ(stored_difference(ignored, config_of(claimed)) != "", divides) << claimed.name();
    EXPECT_NE(silent_group(ignored, config_of(claimed)), "") << claimed.name();
  }
}

// Names of the guaranteed properties on the published page.
TEST(Layouts, TheSampleHasEveryVariant) {
  std::vector<LayoutCase> all = all_cases(8);
  const std::vector<LayoutCase> experts = expert_cases(8);
  all.insert(all.end(), experts.begin(), experts.end());
  std::set<std::string> seen;
  for (const LayoutCase& c : sample_cases(all, 100, 3))
    for (const std::string& variant : variants(c)) seen.insert(variant);
  for (const char* variant : {"schedule gpipe",
                              "schedule 1f1b",
                              "schedule interleaved_1f1b",
                              "schedule zb_h1",
                              "schedule zb_h2",
                              "schedule custom, from a file",
                              "uneven stages",
                              "2 chunks a rank",
                              "selective recompute",
                              "full recompute",
                              "context p2p (ring)",
                              "context a2a (Ulysses)",
                              "context a2a+p2p (Ulysses and ring)",
                              "context zigzag",
                              "context contiguous",
                              "sequence parallel",
                              "expert parallel",
                              "expert tensor parallel",
                              "ZeRO stage 1",
                              "ZeRO stage 2",
                              "ZeRO stage 3",
                              "optimizer states offloaded to cpu",
                              "optimizer states offloaded to nvme",
                              "packed documents",
                              "dropout",
                              "model llama",
                              "model gpt2",
                              "model mistral",
                              "model qwen2",
                              "model qwen3",
                              "model gemma2",
                              "model gemma3",
                              "model smollm3",
                              "model granite",
                              "model olmo2",
                              "model glm4",
                              "model mixtral",
                              "model qwen2_moe",
                              "model deepseek",
                              "model deepseek_v3",
                              "model gpt_oss",
                              "model llama4"})
    EXPECT_TRUE(seen.erase(variant)) << variant;
  EXPECT_TRUE(seen.empty()) << *seen.begin();
}

// Routers choose the same experts in every layout: in no compared run is a choice close to another
// one.
TEST(Layouts, RoundingCannotChangeAChoiceOfExperts) {
  for (const char* experts : {"mixtral", "qwen2_moe", "deepseek", "deepseek_v3"})
    for (const bool packed : {false, true})
      for (const DType dtype : {DType::kF64, DType::kF32}) {
        LayoutCase c;
        c.experts = experts;
        c.packed = packed;
        c.dtype = dtype;
        const double margin = reference(c).routing_margin;
        EXPECT_GE(margin, required_routing_margin(dtype)) << c.name();
        EXPECT_LT(margin, 1e-2) << c.name() << ": thousands of choices, and none is near another";
      }
}

TEST(Layouts, AWrongGradientIsNoticed) {
  LayoutCase c;
  const LayoutResult& one = reference(c);
  LayoutResult wrong = one;
  double& element = wrong.gradients[2].begin()->second[3];
  element += 1e-6 * (std::abs(element) + one.norms[2]);
  EXPECT_NE(layout_difference(wrong, one, c.dtype), "");
  wrong = one;
  wrong.norms[1] *= 1 + 1e-8;
  EXPECT_NE(layout_difference(wrong, one, c.dtype), "");
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Tolerances of bfloat16 do not hide an error of 30 %, in all gradients or in one tensor with a
// tenth of the gradient.
TEST(Layouts, AFaultOf30PercentIsNoticedInBFloat16) {
  for (const char* variant : {"", "qwen3", "gemma3"}) {
    LayoutCase c;
    c.variant = variant;
    LayoutCase rounded = c;
    rounded.dtype = DType::kBF16;
    const LayoutResult& one = reference(rounded);
    const LayoutError allowed = allowed_error(DType::kBF16, one, reference(c));
    const auto noticed = [&](const LayoutResult& got) {
      return !layout_difference(got, one, DType::kBF16, allowed).empty();
    };
    rounded.sizes.tp = 2;
    EXPECT_FALSE(noticed(run_layout(rounded))) << variant;
    for (const double factor : {0.7, 1.3}) {
      LayoutResult all = one;
      int tensors = 0;
      for (auto& [name, values] : all.gradients[0]) {
        LayoutResult wrong = one;
        for (double& value : wrong.gradients[0].at(name)) value *= factor;
        for (double& value : values) value *= factor;
        if (norm_of(values) < 0.1 * one.norms[0]) continue;
        ++tensors;
        EXPECT_TRUE(noticed(wrong)) << variant << ": " << name << " times " << factor;
      }
      EXPECT_GE(tensors, 3) << variant;
      EXPECT_TRUE(noticed(all)) << variant << ": all times " << factor;
    }
  }
}

}  // namespace
}  // namespace trireme::test::test_layouts
