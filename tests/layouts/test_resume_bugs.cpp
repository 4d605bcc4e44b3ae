// Negative controls modelled on bugs of other engines published in 2026: resumes that continue with
// another model than was saved, without an error. Each bug is injected here once and detected by
// the comparisons of test_checkpoints.cpp.
#include <gtest/gtest.h>

#include <cstring>
#include <regex>

#include "tests/layouts/resumed_run.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test::test_resume_bugs {
namespace {

LayoutCase bf16_layout(int dp, int pp, int zero) {
  LayoutCase c = layout(dp, 1, pp, 1, zero);
  c.dtype = DType::kBF16;  // with master weights
  return c;
}

// Restores everything outside of this rank's own parts to its state before loading.
void load_owned_only(LayoutRank& rank, const std::function<void()>& load) {
  const ParameterStore& store = rank.state.store;
  const Tensor values = store.flat_values();
  const int64_t width = dtype_size(values.dtype());
  const auto* const bytes = static_cast<const std::byte*>(values.raw());
  std::vector<std::byte> kept(bytes, bytes + values.bytes());
  load();
  store.owned().for_each({0, store.flat_size()}, [&](const FlatRange& part, int64_t) {
    const int64_t at = store.value_map().offset(part.begin) * width;
    std::memcpy(kept.data() + at, bytes + at, static_cast<size_t>(part.size() * width));
  });
  std::memcpy(values.raw(), kept.data(), kept.size());
}

// Megatron-LM PR #6920: after loading, each rank updates the weights from its own shard of the
// master weights, and the all-gather of the other ranks' shards is missing. The owners' values are
// correct, so that comparing them, or another checkpoint, detects nothing; comparing the rank's
// replicas does, and the next loss.
TEST(ResumeBugs, ReplicasOfWeightsAreNotLoaded) {
  const ScratchDirectory scratch;
  const LayoutCase c = bf16_layout(2, 1, 1);
  const RunPart straight = run_part(c, 0, 3, "", "");
  const RunPart saved = run_part(c, 0, 2, "", scratch.path());
  EXPECT_EQ(saved.replica, "");
  const RunPart loaded = run_part(c, 2, 2, scratch.path(), "", load_owned_only);
  EXPECT_TRUE(loaded.tensors == saved.tensors);
  EXPECT_NE(loaded.replica, "");
  const RunPart resumed = run_part(c, 2, 3, scratch.path(), "", load_owned_only);
  const RunPart right = run_part(c, 2, 3, scratch.path(), "");
  EXPECT_EQ(right.losses.at(0), straight.losses.at(2));
  EXPECT_GT(std::abs(resumed.losses.at(0) - straight.losses.at(2)), 1e-3);
  EXPECT_FALSE(resumed.tensors == straight.tensors);
}

// Megatron-LM #7452, finding 12: a pipeline stage numbers its layers from 0 and requests these from
// a checkpoint of fewer stages: loading is complete and strict, but of the first stage's layers.
TEST(ResumeBugs, LayersOfAStageAreLoadedByTheirNumberInIt) {
  const ScratchDirectory scratch;
  const RunPart saved = run_part(bf16_layout(2, 1, 1), 0, 2, "", scratch.path());
  const auto load_stage_names = [](LayoutRank& rank, const std::function<void()>& load) {
    const int64_t first =
        rank.groups.layout.pp.index * rank.config.model.num_layers / rank.groups.layout.pp.size;
    auto& specs = const_cast<std::vector<ParameterSpec>&>(rank.state.store.specs());
    const std::vector<ParameterSpec> right = specs;
    for (ParameterSpec& spec : specs) {
      std::smatch layer;
      if (!std::regex_match(spec.name, layer, std::regex("(.*\\.)([0-9]+)(\\..*)"))) continue;
      spec.name = concat(layer[1].str(), std::stoll(layer[2]) - first, layer[3].str());
    }
    load();
    specs = right;
  };
  EXPECT_TRUE(run_part(bf16_layout(1, 2, 0), 2, 2, scratch.path(), "").tensors == saved.tensors);
  const RunPart loaded = run_part(bf16_layout(1, 2, 0), 2, 2, scratch.path(), "", load_stage_names);
  EXPECT_FALSE(loaded.tensors == saved.tensors);
}

// The same class: what routers learn outside of gradients stays as in a fresh run, on one of two
// ranks.
TEST(ResumeBugs, RouterBiasesOfARankAreNotLoaded) {
  const ScratchDirectory scratch;
  LayoutCase c = bf16_layout(2, 1, 0);
  c.dtype = DType::kF64;
  c.experts = "deepseek";
  run_part(c, 0, 2, "", scratch.path());
  const auto forget_biases = [](LayoutRank& rank, const std::function<void()>& load) {
    load();
    if (rank.groups.world.rank() == 0) return;
    for (const RouterState::Named& t : rank.state.model.routers()->saved())
      std::memset(t.tensor.raw(), 0, static_cast<size_t>(t.tensor.bytes()));
  };
  EXPECT_EQ(run_part(c, 2, 2, scratch.path(), "").replica, "");
  EXPECT_NE(run_part(c, 2, 2, scratch.path(), "", forget_biases).replica, "");
}

}  // namespace
}  // namespace trireme::test::test_resume_bugs
