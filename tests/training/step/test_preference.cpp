// Preference training compared with TRL's formula (tests/golden/dpo, in float64 by PyTorch).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/safetensors.h"
#include "engine/ops/loss/cross_entropy.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"
#include "training/step/train_step.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme::test::test_preference {
namespace {

const std::string kGolden = test::source_folder() + "/tests/golden/";

nlohmann::json golden() { return read_json_file<nlohmann::json>(kGolden + "dpo/dpo.json"); }

// One pair in each sequence, padded.
MicroBatch batch_of(const nlohmann::json& pairs, int64_t length) {
  MicroBatch batch = shape_of_micro_batch(std::ssize(pairs), length);
  std::ranges::fill(batch.targets, kIgnoredTarget);
  batch.cu_seqlens = {0};
  int64_t sequence = 0;
  for (const auto& pair : pairs) {
    int64_t at = sequence * length;
    const auto put = [&](const char* name) {
      const std::vector<int32_t> ids = pair[name];
      const int64_t asked = pair["prompt"];
      PreferenceResponse response{at, at + std::ssize(ids) - 1, std::ssize(ids) - asked,
                                  pair[std::string("reference_") + name]};
      for (int64_t i = 0; i + 1 < std::ssize(ids); ++i, ++at) {
        const auto to = static_cast<size_t>(at);
        batch.tokens[to] = ids[static_cast<size_t>(i)];
        batch.positions[to] = static_cast<int32_t>(i);
        if (i + 1 >= asked) batch.targets[to] = ids[static_cast<size_t>(i) + 1];
      }
      batch.cu_seqlens.push_back(static_cast<int32_t>(at));
      return response;
    };
    const PreferenceResponse chosen = put("chosen");
    batch.pairs.push_back({chosen, put("rejected")});
    batch.cu_seqlens.push_back(static_cast<int32_t>(++sequence * length));
  }
  for (size_t i = 0; i < batch.global_index.size(); ++i)
    batch.global_index[i] = static_cast<int64_t>(i);
  return batch;
}

TEST(Preference, LossAndGradientsAreThoseOfTrl) {
  const nlohmann::json known = golden();
  const HfModel base(kGolden + "peft/base");
  const SafetensorsReader gradients(kGolden + "dpo/gradients.safetensors");
  for (const auto& [name, kind] : known["kinds"].items()) {
    SCOPED_TRACE(name);
    RunConfig config;
    config.model = base.config();
    config.dtype = DType::kF64;
    config.sequence_length = 40;
    config.train_steps = 2;
    config.micro_batch_size = config.train_batch_size = std::ssize(known["pairs"]);
    config.gradient_accumulation_steps = 1;
    config.finetune.enabled = true;
    config.finetune.method = "dpo";
    config.finetune.dpo.beta = kind["beta"];
    config.finetune.dpo.label_smoothing = kind["label_smoothing"];
    if (kind["loss_type"] == "ipo") config.finetune.dpo.type = PreferenceConfig::Type::kIpo;
    run_threads(
        1,
        [&, name = name, kind = kind](Communicator& world) {
          const Groups groups(world, config.parallel, 1);
          Ctx ctx(1, "test");
          TrainState state(config, groups.layout);
          TrainStep step(config, state, groups, ctx);
          const ArenaPlan plan = start_fresh(state, step, ctx);
          base.load(ctx, state.model, state.store);
          const StepResult result = step.run(0, {batch_of(known["pairs"], 40)}, plan);
          EXPECT_NEAR(result.loss, kind["loss"].get<double>(), 1e-6 * std::abs(result.loss));
          EXPECT_EQ(result.preferences.pairs, std::ssize(known["pairs"]));
          EXPECT_NEAR(result.preferences.loss / result.preferences.pairs, result.loss, 1e-12);
          int compared = 0;
          for (ParamHandle h = 0; h < std::ssize(state.store.specs()); ++h) {
            const std::string key =
                concat(name, ".", state.store.specs()[static_cast<size_t>(h)].name);
            if (gradients.find(key) == nullptr) continue;
            const std::vector<double> want = to_doubles(gradients.tensor(key));
            const std::vector<double> got =
                to_doubles(state.store.view_in(state.store.flat_gradients(), h));
            double largest = 0;
            for (const double g : want) largest = std::max(largest, std::abs(g));
            for (size_t i = 0; i < want.size(); ++i)
              ASSERT_NEAR(got[i], want[i], 2e-6 * largest) << key;
            ++compared;
          }
          EXPECT_EQ(compared, 3);
        },
        {});
  }
}

// Derivatives of every kind of loss compared with differences, and saturation.
TEST(Preference, DerivativesAreThoseOfTheLoss) {
  for (const auto type : {PreferenceConfig::Type::kSigmoid, PreferenceConfig::Type::kIpo})
    for (const double off : {-900.0, -3.0, 0.0, 0.7, 800.0}) {
      const PreferenceConfig config{type, 0.4, type == PreferenceConfig::Type::kIpo ? 0 : 0.1};
      const PreferencePair pair{{0, 1, 3, -4.0}, {1, 2, 5, -6.0}};
      const auto loss_at = [&](double chosen, double rejected, double* dc, double* dr) {
        PreferenceSums sums;
        double d_chosen = 0, d_rejected = 0;
        add_pair(config, pair, chosen, rejected, sums, d_chosen, d_rejected);
        if (dc != nullptr) *dc = d_chosen, *dr = d_rejected;
        return sums.loss;
      };
      double dc = 0, dr = 0;
      const double loss = loss_at(-4.0 + off, -6.5, &dc, &dr);
      EXPECT_TRUE(std::isfinite(loss) && std::isfinite(dc) && std::isfinite(dr)) << off;
      constexpr double kStep = 1e-4;
      const auto slope = [&](double a, double b) {
        return (loss_at(-4.0 + off + a, -6.5 + b, nullptr, nullptr) -
                loss_at(-4.0 + off - a, -6.5 - b, nullptr, nullptr)) /
               (2 * kStep);
      };
      const double size = 1e-6 * (1 + std::abs(loss));
      EXPECT_NEAR(dc, slope(kStep, 0), size) << off;
      EXPECT_NEAR(dr, slope(0, kStep), size) << off;
    }
}

}  // namespace
}  // namespace trireme::test::test_preference
