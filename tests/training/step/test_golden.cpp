// The model, its gradients and the update compared with an independent reference in float64
// (tests/golden/README.md), and the other dtypes and recompute policies compared with that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/training/step/golden_case.h"

namespace trireme::test::test_golden {
namespace {

// A state with the reference's weights, and its training step, on one rank.
struct Trainer {
  Trainer(const GoldenCase& golden, Communicator& group)
      : config(golden.config()),
        ctx(1, "test"),
        groups(group, config.parallel),
        state(config, groups.layout),
        step(config, state, groups, ctx) {
    state.allocate(ctx);
    golden.load_weights(ctx, state.store);
    state.optimizer.initialize(ctx);
    plan = step.plan();
    ctx.arena.reserve(plan.capacity);
  }
  StepResult run(int64_t number, const MicroBatch& batch) {
    return step.run(number, {batch}, plan);
  }
  std::vector<double> gradient(size_t h) const {
    return to_doubles(
        state.store.view_in(state.store.flat_gradients(), static_cast<ParamHandle>(h)));
  }
  RunConfig config;
  Ctx ctx;
  Groups groups;
  TrainState state;
  TrainStep step;
  ArenaPlan plan;
};

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double dot = 0;
  for (size_t i = 0; i < a.size(); ++i) dot += a[i] * b[i];
  return dot / (norm(a) * norm(b));
}

// Every gradient within golden.tolerance() of the reference, in the norm. A key's bias has a zero
// gradient by mathematics: hence the share of the global norm.
void expect_gradients(const GoldenCase& golden, const SafetensorsReader& reference,
                      const Trainer& trainer, double global_norm) {
  const auto& specs = trainer.state.store.specs();
  for (size_t h = 0; h < specs.size(); ++h) {
    const std::vector<double> expected = golden.reference(reference, "grad.", specs[h]);
    std::vector<double> difference = trainer.gradient(h);
    ASSERT_EQ(difference.size(), expected.size());
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    EXPECT_LE(norm(difference), golden.tolerance() * (norm(expected) + 1e-6 * global_norm))
        << specs[h].name;
  }
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};
// Tests that do not apply to experts: their choice is not continuous, so that rounding may change
// it, and their balancing losses are defined per micro-batch.
class DenseGoldenTest : public GoldenTest {};

TEST_P(GoldenTest, LossAndEveryGradientInFloat64) {
  for (const char* file : {"dense", "packed"}) {
    SCOPED_TRACE(file);
    GoldenCase golden(GetParam(), DType::kF64);
    const SafetensorsReader reference = golden.open(file);
    run_threads(1, [&](Communicator& group) {
      Trainer trainer(golden, group);
      const StepResult result = trainer.run(0, golden.batch(reference));
      const double want = to_doubles(reference.tensor("loss"))[0];
      EXPECT_NEAR(result.loss, want, std::abs(want) * golden.tolerance());
      expect_gradients(golden, reference, trainer, result.grad_norm);
    });
  }
}

TEST_P(GoldenTest, OneUpdateInFloat64) {
  GoldenCase golden(GetParam(), DType::kF64);
  golden.config().gradient_clipping = 0;
  const SafetensorsReader reference = golden.open("dense");
  run_threads(1, [&](Communicator& group) {
    Trainer trainer(golden, group);
    trainer.run(0, golden.batch(reference));
    const auto& specs = trainer.state.store.specs();
    for (size_t h = 0; h < specs.size(); ++h) {
      const std::vector<double> expected = golden.reference(reference, "updated.", specs[h]);
      const auto got = to_doubles(trainer.state.store.value(static_cast<ParamHandle>(h)));
      EXPECT_LE(worst_relative(got, expected), golden.steps_tolerance()) << specs[h].name;
    }
  });
}

TEST_P(GoldenTest, TenStepsInFloat64) {
  GoldenCase golden(GetParam(), DType::kF64);
  const SafetensorsReader reference = golden.open("steps");
  const std::vector<double> losses = to_doubles(reference.tensor("losses"));
  const std::vector<double> norms = to_doubles(reference.tensor("grad_norms"));
  ASSERT_EQ(losses.size(), 10u);
  run_threads(1, [&](Communicator& group) {
    Trainer trainer(golden, group);
    for (int64_t s = 0; s < 10; ++s) {
      const StepResult result = trainer.run(s, golden.batch(reference, s));
      const auto i = static_cast<size_t>(s);
      EXPECT_NEAR(result.loss, losses[i], losses[i] * golden.steps_tolerance()) << "step " << s;
      EXPECT_NEAR(result.grad_norm, norms[i], norms[i] * golden.steps_tolerance()) << "step " << s;
    }
  });
}

TEST_P(GoldenTest, RecomputePoliciesAreBitIdentical) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<std::vector<double>> gradients;
    std::vector<int64_t> bytes;
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      GoldenCase golden(GetParam(), dtype);
      golden.config().recompute = recompute;
      // With dropout, recomputation must draw the same masks.
      ModelConfig& model = golden.config().model;
      model.residual_dropout = model.attention_dropout = model.embedding_dropout = 0.1;
      const SafetensorsReader reference = golden.open("packed");
      run_threads(1, [&](Communicator& group) {
        Trainer trainer(golden, group);
        trainer.run(0, golden.batch(reference));
        gradients.push_back(to_doubles(trainer.state.store.flat_gradients()));
        bytes.push_back(trainer.plan.capacity);
      });
    }
    EXPECT_EQ(gradients[0], gradients[1]) << dtype_name(dtype);
    EXPECT_EQ(gradients[0], gradients[2]) << dtype_name(dtype);
    EXPECT_LT(bytes[1], bytes[0]);
  }
}

TEST_P(DenseGoldenTest, LowerPrecisionsFollowFloat64) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    GoldenCase golden(GetParam(), dtype);
    golden.config().loss_scale.static_scale = 1024;  // acts in float16 only
    const SafetensorsReader reference = golden.open("dense");
    run_threads(1, [&](Communicator& group) {
      Trainer trainer(golden, group);
      const StepResult result = trainer.run(0, golden.batch(reference));
      const double want = to_doubles(reference.tensor("loss"))[0];
      EXPECT_NEAR(result.loss, want, want * tolerance(dtype, 1000).relative);
      EXPECT_FALSE(result.skipped);
      const double least = dtype == DType::kF32 ? 0.9999 : 0.99;  // cosine of a whole gradient
      const auto& specs = trainer.state.store.specs();
      for (size_t h = 0; h < specs.size(); ++h) {
        const std::vector<double> expected = golden.reference(reference, "grad.", specs[h]);
        if (norm(expected) < 1e-6 * result.grad_norm) continue;  // zero by mathematics
        EXPECT_GE(cosine(trainer.gradient(h), expected), least) << specs[h].name;
      }
    });
  }
}

// Sequence n of a batch of two.
MicroBatch half(const MicroBatch& whole, size_t n) {
  const size_t s = whole.tokens.size() / 2;
  const auto cut = [&](const auto& v) {
    return std::decay_t<decltype(v)>(v.begin() + static_cast<std::ptrdiff_t>(n * s),
                                     v.begin() + static_cast<std::ptrdiff_t>((n + 1) * s));
  };
  MicroBatch out;
  out.tokens = cut(whole.tokens);
  out.targets = cut(whole.targets);
  out.positions = cut(whole.positions);
  out.global_index = cut(whole.global_index);
  out.max_seqlen = static_cast<int32_t>(s);
  out.cu_seqlens = {0, out.max_seqlen};
  out.valid_targets = std::ssize(out.targets) - std::ranges::count(out.targets, -100);
  return out;
}

TEST_P(DenseGoldenTest, AccumulatedMicroBatchesEqualOneBatch) {
  GoldenCase golden(GetParam(), DType::kF64);
  const SafetensorsReader reference = golden.open("dense");
  const MicroBatch whole = golden.batch(reference);
  const std::vector<MicroBatch> halves = {half(whole, 0), half(whole, 1)};
  // In gpt2's batch the halves have different numbers of targets: a mean of means would fail.
  if (GetParam() == std::string("gpt2")) {
    ASSERT_NE(halves[0].valid_targets, halves[1].valid_targets);
  }
  golden.config().micro_batch_size = 1;
  golden.config().gradient_accumulation_steps = 2;
  run_threads(1, [&](Communicator& group) {
    Trainer trainer(golden, group);
    const StepResult result = trainer.step.run(0, halves, trainer.plan);
    const double want = to_doubles(reference.tensor("loss"))[0];
    EXPECT_NEAR(result.loss, want, want * golden.tolerance());
    expect_gradients(golden, reference, trainer, result.grad_norm);
  });
}

TEST_P(GoldenTest, AWrongWeightIsNoticed) {
  GoldenCase golden(GetParam(), DType::kF64);
  const SafetensorsReader reference = golden.open("dense");
  run_threads(1, [&](Communicator& group) {
    Trainer trainer(golden, group);
    trainer.state.store.value(1).as<double>()[0] += 1e-3;
    const StepResult result = trainer.run(0, golden.batch(reference));
    const double want = to_doubles(reference.tensor("loss"))[0];
    EXPECT_GT(std::abs(result.loss - want), want * golden.tolerance());
  });
}

std::string model_name(const ::testing::TestParamInfo<const char*>& model) { return model.param; }
INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         ::testing::Values("gpt2", "llama", "llama_variant", "mixtral"),
                         model_name);
INSTANTIATE_TEST_SUITE_P(Models, DenseGoldenTest,
                         ::testing::Values("gpt2", "llama", "llama_variant"), model_name);

}  // namespace
}  // namespace trireme::test::test_golden
