// An update does not depend on how the parameters are divided, nor on where the states are stored.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/core/error.h"
#include "engine/core/normal_number.h"
#include "engine/ops/context.h"
#include "optim/adamw.h"
#include "optim/flat_optimizer.h"
#include "optim/optimizers.h"
#include "optim/sgd.h"
#include "optim/step_control.h"
#include "tests/engine/io/small_disk.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_flat_optimizer {
namespace {

constexpr int64_t kRows = 40, kColumns = 300;

ParameterList list(const TensorBox& box) {
  ParameterList parameters;
  parameters.add({.name = "w",
                  .shape = Shape{kRows, kColumns},
                  .box = box,
                  .init = InitKind::kNormal,
                  .init_std = 1,
                  .decay = true});
  parameters.add({.name = "b", .shape = Shape{77}, .init = InitKind::kOnes, .block = 1});
  return parameters;
}

// Weights and moments in bf16, no master weights: everything is rounded stochastically.
OptimizerConfig config() {
  OptimizerConfig c;
  c.lr = 0.01;
  c.state_dtype = DType::kBF16;
  c.master_weights = false;
  return c;
}

float gradient_of(int64_t element, int step) {
  return static_cast<float>(
      philox_normal({5, static_cast<uint64_t>(step)}, static_cast<uint64_t>(element)));
}

// name[index in the whole tensor] -> bits of the weight and the two moments, after three updates.
using Elements = std::map<std::string, std::vector<float>>;

Elements updated(const TensorBox& box, const Sharding& sharding, const OffloadConfig& offload,
                 const OptimizerConfig& optimizer_config = config()) {
  ParameterStore store(list(box), DType::kBF16, sharding);
  Ctx ctx(1, "test");
  store.allocate(ctx, true);
  store.initialize(ctx, 1);
  FlatOptimizer optimizer(optimizer_config, offload, store, 9);
  optimizer.allocate(ctx);
  optimizer.initialize(ctx);
  for (int step = 1; step <= 3; ++step) {
    for (ParamHandle h = 0; h < 2; ++h)
      store.gradient_map().for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
        ElementIndex index = store.specs()[static_cast<size_t>(h)].element_index();
        index.offset = part.begin - store.range(h).begin;
        for (int64_t i = 0; i < part.size(); ++i)
          store.flat_gradients().as<float>()[at + i] = gradient_of(index.of(i), step);
      });
    StepScalars scalars{.grad_multiplier = 1, .learning_rate = 0.01, .count = step};
    optimizer.update(ctx, Tensor(&scalars, DType::kU8, Shape{kStepScalarsBytes}));
  }
  Elements out;
  for (ParamHandle h = 0; h < 2; ++h)
    store.state_map().for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
      for (int64_t i = 0; i < part.size(); ++i) {
        std::vector<float>& values = out[store.element_name(part.begin + i)];
        const int64_t value = store.value_map().offset(part.begin) + i;
        values.push_back(static_cast<float>(store.flat_values().as<bf16>()[value]));
        for (const FlatOptimizer::State& state : optimizer.states())
          values.push_back(state.flat.dtype() == DType::kBF16
                               ? static_cast<float>(state.flat.as<bf16>()[at + i])
                               : state.flat.as<float>()[at + i]);
      }
    });
  return out;
}

OptimizerConfig lion() {
  OptimizerConfig c = config();
  c.rule = optimizer_row("Lion").make();
  return c;
}

TEST(FlatOptimizer, NeitherBoxesNorShardsChangeABit) {
  for (const OptimizerConfig& c : {config(), lion()}) {
    const Elements whole = updated({}, {}, {}, c);
    ASSERT_EQ(std::ssize(whole), kRows * kColumns + 77);
    for (const TensorBox& box : {TensorBox{}, TensorBox{{10, 0}, {21, kColumns}},
                                 TensorBox{{0, 100}, {kRows, 131}}, TensorBox{{3, 7}, {30, 200}}})
      for (int stage = 0; stage <= 3; ++stage)
        for (int i = 0; i < 3; ++i)
          for (const auto& [name, values] : updated(box, {stage, {3, i}, {3, i}}, {}, c))
            ASSERT_EQ(values, whole.at(name)) << name << " stage " << stage << " rank " << i;
  }
}

// Fills matrices with ones; requires each matrix as a whole.
class MatrixFiller final : public Optimizer {
 public:
  std::unique_ptr<Optimizer> clone() const override { return std::make_unique<MatrixFiller>(); }
  const char* name() const override { return "MatrixFiller"; }
  void visit(HyperparameterVisitor&) override {}
  bool normalizes() const override { return true; }
  std::vector<StateStorage::Kind> states(DType) const override { return {}; }
  bool needs_matrices() const override { return true; }
  void update(Ctx&, const UpdatePart& part) const override {
    if (part.spec.shape.rank() < 2) return;
    ASSERT_EQ(part.param.numel(), part.spec.shape.numel());
    std::fill_n(part.param.as<bf16>(), part.param.numel(), bf16(1.0f));
  }
};

TEST(FlatOptimizer, WhatNeedsMatricesIsRefusedByNameWhereTheyAreCut) {
  OptimizerConfig c = config();
  c.rule = std::make_shared<MatrixFiller>();
  for (const auto& [name, values] : updated({}, {}, {}, c))
    if (name.starts_with("w[")) {
      ASSERT_EQ(values, std::vector<float>{1.0f}) << name;
    }
  const auto problem = [&](const TensorBox& box, const Sharding& sharding,
                           const OffloadConfig& offload) -> std::string {
    try {
      updated(box, sharding, offload, c);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const std::string cut =
      "optimizer.type: MatrixFiller updates whole matrices, but this rank holds only ";
  const std::string way_out = "; use zero_optimization.stage 0 and tensor_model_parallel_size 1";
  EXPECT_EQ(problem({{0, 0}, {20, kColumns}}, {}, {}),
            cut + "6000 of the 12000 elements of w" + way_out);
  for (int stage = 1; stage <= 3; ++stage)
    EXPECT_TRUE(problem({}, {stage, {2, 0}, {2, 0}}, {}).starts_with(cut)) << stage;
  OffloadConfig file;
  file.device = OffloadDevice::kFile;
  EXPECT_EQ(problem({}, {}, file),
            "zero_optimization.offload_optimizer.device: nvme is not supported with optimizer.type "
            "MatrixFiller, which updates whole matrices (a file is read in windows); supported: "
            "none, cpu");
  for (const OffloadDevice other : {OffloadDevice::kCpu, OffloadDevice::kNone}) {
    file.device = other;
    EXPECT_EQ(problem({}, {}, file), "");
  }
}

OffloadConfig in_file(const std::string& path, int64_t buffers = 2) {
  OffloadConfig offload;
  offload.device = OffloadDevice::kFile;
  offload.path = path;
  offload.buffer_count = buffers;
  offload.buffer_elements = 1;  // rounded up to 4096: three windows
  return offload;
}

TEST(FlatOptimizer, OffloadDoesNotChangeABit) {
  const test::ScratchDirectory scratch;
  OffloadConfig cpu;
  cpu.device = OffloadDevice::kCpu;
  OptimizerConfig master = config();
  master.master_weights = true;
  OptimizerConfig sgd = config();
  Sgd rule;
  rule.momentum = 0.9;
  sgd.rule = rule.clone();
  for (const OptimizerConfig& c : {config(), master, sgd, lion()}) {
    const Elements want = updated({}, {}, {}, c);
    EXPECT_TRUE(updated({}, {}, cpu, c) == want);
    for (int64_t buffers : {2, 3, 5})
      EXPECT_TRUE(updated({}, {}, in_file(scratch.path(), buffers), c) == want) << buffers;
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));  // files have no names
}

TEST(FlatOptimizer, AFileBoundsTheMemory) {
  ParameterStore store(list({}), DType::kBF16);
  const test::ScratchDirectory scratch;
  const FlatOptimizer optimizer(config(), in_file(scratch.path()), store, 1);
  EXPECT_EQ(optimizer.state_bytes(), 2 * (2 * 4096 * 2));  // buffers x (moments x window x bf16)
  EXPECT_EQ(optimizer.file_bytes(), 2 * round_up(store.flat_size() * 2, 4096));
}

TEST(FlatOptimizer, AFullDiskIsAnErrorBeforeTheFirstStep) {
  const test::ScratchDirectory scratch;
  const test::SmallDisk disk(scratch / "disk", 16 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  ParameterStore store(list({}), DType::kBF16);
  FlatOptimizer optimizer(config(), in_file(scratch / "disk"), store, 1);
  Ctx ctx(1, "test");
  try {
    optimizer.allocate(ctx);
    FAIL() << "a full disk was not noticed";
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("offload_optimizer: cannot reserve"), std::string::npos) << what;
    EXPECT_NE(what.find("No space left"), std::string::npos) << what;
  }
}

// Descriptor of the states' file, which is unlinked.
std::string open_file_under(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with(folder)) return entry.path().string();
  }
  return "";
}

TEST(FlatOptimizer, AFileCutShortIsNamed) {
  const test::ScratchDirectory scratch;
  ParameterStore store(list({}), DType::kBF16);
  Ctx ctx(1, "test");
  store.allocate(ctx, true);
  FlatOptimizer optimizer(config(), in_file(scratch.path()), store, 1);
  optimizer.allocate(ctx);
  const std::string file = open_file_under(scratch.path());
  ASSERT_NE(file, "");
  ASSERT_EQ(::truncate(file.c_str(), 30'000), 0);
  StepScalars scalars;
  try {
    optimizer.update(ctx, Tensor(&scalars, DType::kU8, Shape{kStepScalarsBytes}));
    FAIL() << "a short read was not noticed";
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("ends early, at byte"), std::string::npos) << what;
    EXPECT_NE(what.find("exp_avg"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace trireme::test_flat_optimizer
