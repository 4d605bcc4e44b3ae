// Sequences of several adapters in one batch, compared with each adapter alone (tests/golden/peft,
// made by PEFT).
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "parallel/comm/world.h"
#include "serving/engine/model_executor.h"
#include "serving/scheduler/scheduler.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/peft/stacked_adapters.h"
#include "transformer/pass/sharding.h"

namespace trireme::test_stacked_adapters {
namespace {

namespace fs = std::filesystem;
const std::string kGolden = test::source_folder() + "/tests/golden/peft/";
constexpr int64_t kBlockTokens = 4, kLength = 40, kBlocks = 60;

// The golden adapter with another factor, for the same layers or for fewer.
std::string variant(const test::ScratchDirectory& dir, const std::string& name, double alpha,
                    const std::vector<std::string>& targets, const std::string& golden) {
  LoraConfig lora = PeftAdapter(golden + "adapter").lora();
  if (!targets.empty()) lora.targets = targets;
  write_peft_adapter(lora, HfModel(golden + "base").config(), PeftAdapter(golden + "adapter"),
                     "base", dir / name);
  const std::string file = (fs::path(dir / name) / "adapter_config.json").string();
  auto json = test::read_json_file<nlohmann::ordered_json>(file);
  json["lora_alpha"] = alpha;
  for (auto& [layer, value] : json["alpha_pattern"].items())
    value = alpha * (lora.rank_stabilized ? std::sqrt(3.0) : 3.0);
  write_file_atomically(file, json.dump());
  return dir / name;
}

// Log-probabilities of a prompt's tokens and of those sampled after it, for each of several
// adapters.
std::map<int32_t, std::vector<double>> logprobs_of(
    const std::string& base, const std::string& adapter, const std::vector<std::string>& modules,
    const std::vector<int32_t>& asked, const ParallelSizes& sizes,
    const AdapterSlots& adapter_slots = {}, const std::map<size_t, std::string>& later = {}) {
  std::map<int32_t, std::vector<double>> out;
  run_threads(sizes.tp * sizes.pp, [&](Communicator& world) {
    LoadedModel loaded(base, world, DType::kF32, adapter, {}, modules, adapter_slots);
    const Groups groups(world, sizes, kv_head_copies(loaded.config(), sizes.tp));
    Ctx ctx(1, "test");
    loaded.load(ctx, groups.layout, kLength);
    for (const auto& [slot, path] : later)
      loaded.install_adapter(ctx, *loaded.stage_adapter(slot, path));
    StepLimits limits{.tokens = 24, .sequences = 4, .length = kLength, .blocks = kBlocks};
    limits.block_tokens = kBlockTokens;
    limits.adapters = !modules.empty() || adapter_slots.count > 0;
    ModelExecutor executor(loaded.model(), loaded.parameters(), ctx, &groups,
                           {.limits = limits, .adapters = loaded.module_columns()});
    KvBlockPool pool(kBlocks, kBlockTokens, 1);
    Scheduler scheduler({.max_sequences = 4, .max_step_tokens = 24, .max_model_len = kLength},
                        pool);
    auto choice = std::make_shared<SamplingParams>();
    choice->sampling.temperature = 0;
    choice->prompt_logprobs = choice->top_logprobs = 0;
    std::map<const Sequence*, int32_t> number;
    for (const int32_t one : asked) {
      const auto sequence =
          std::make_shared<Sequence>(SequenceRequest{.prompt = {1, 5, 9, 22, 31, 7, 7, 40, 12},
                                                     .sampling_params = choice,
                                                     .max_tokens = 5,
                                                     .adapter = one});
      number[sequence.get()] = one;
      scheduler.add(sequence);
    }
    std::map<int32_t, std::vector<double>> here;
    while (!scheduler.idle()) {
      const SchedulerOutput plan = scheduler.next();
      for (Progress& p : scheduler.done(plan, executor.execute(plan))) {
        std::vector<double>& to = here[number.at(p.sequence.get())];
        for (const OutputToken& token : p.prompt) to.push_back(token.logprob);
        for (const OutputToken& token : p.tokens) to.push_back(token.logprob);
      }
    }
    if (world.rank() == 0) out = here;
  });
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double allowed,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], allowed) << what << " " << i;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

void compare(const std::string& golden, const std::vector<std::string>& few) {
  const test::ScratchDirectory dir;
  const std::string base = golden + "base";
  const std::vector<std::string> modules{golden + "adapter", variant(dir, "few", 11, few, golden),
                                         variant(dir, "strong", 30, {}, golden)};
  std::vector<std::vector<double>> want{logprobs_of(base, "", {}, {-1}, {}).at(-1)};
  for (const std::string& module : modules)
    want.push_back(logprobs_of(base, module, {}, {-1}, {}).at(-1));
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_GT(distance(want[i], want[j]), 1e-2) << i << " " << j;
  for (const auto& [tp, pp] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.pp = pp;
    const auto got = logprobs_of(base, "", modules, {2, -1, 0, 1}, sizes);
    for (int32_t i = -1; i < 3; ++i)
      expect_near(got.at(i), want[static_cast<size_t>(i + 1)], 2e-4,
                  concat("tp ", tp, " pp ", pp, " adapter ", i));
  }
}

TEST(Adapters, OfABatchActEachOnItsSequences) { compare(kGolden, {"q_proj", "v_proj"}); }

TEST(Adapters, OfGpt2Too) { compare(kGolden + "gpt2/", {"c_attn"}); }

// Adapters loaded later, also as replacements, act like those loaded at start.
TEST(Adapters, ComeLaterWhereThereIsRoom) {
  const test::ScratchDirectory dir;
  const std::string base = kGolden + "base", golden = kGolden + "adapter";
  const std::string few = variant(dir, "few", 11, {"q_proj", "v_proj"}, kGolden);
  const std::string strong = variant(dir, "strong", 30, {}, kGolden);
  const AdapterSlots adapter_slots{.count = 3, .rank = PeftAdapter(golden).lora().rank + 3};
  for (const int tp : {1, 2}) {
    ParallelSizes sizes;
    sizes.tp = tp;
    // Slot 0 first has another one, slot 1 none.
    const auto got = logprobs_of(base, "", {strong}, {0, -1, 1, 2}, sizes, adapter_slots,
                                 {{0, few}, {1, golden}, {2, strong}});
    const std::vector<std::string> want{few, golden, strong};
    for (int32_t i = 0; i < 3; ++i)
      expect_near(got.at(i), logprobs_of(base, want[static_cast<size_t>(i)], {}, {-1}, {}).at(-1),
                  2e-4, concat("tp ", tp, " slot ", i));
    expect_near(got.at(-1), logprobs_of(base, "", {}, {-1}, {}).at(-1), 2e-4, "the model alone");
  }
}

TEST(Adapters, ThatThereIsNoRoomForAreRefused) {
  const std::string base = kGolden + "base", golden = kGolden + "adapter";
  const int64_t rank = PeftAdapter(golden).lora().rank;
  EXPECT_THROW(logprobs_of(base, "", {golden}, {0}, {}, {.count = 1, .rank = rank - 1}),
               InputError);
  EXPECT_THROW(logprobs_of(base, "", {golden, golden}, {0}, {}, {.count = 1, .rank = rank}),
               InputError);
  EXPECT_THROW(
      logprobs_of(base, "", {}, {-1}, {}, {.count = 1, .rank = rank}, {{0, kGolden + "dora"}}),
      InputError);
  EXPECT_THROW(logprobs_of(base, "", {}, {-1}, {}, {.count = 1, .rank = rank}, {{0, base}}),
               InputError);
  // It is also multiplied with the tokens of other adapters, by 0.
  const test::ScratchDirectory dir;
  const std::string infinite = variant(dir, "infinite", 1e40, {}, kGolden);
  EXPECT_THROW(logprobs_of(base, "", {}, {-1}, {}, {.count = 2, .rank = rank}, {{0, infinite}}),
               InputError);
  EXPECT_THROW(logprobs_of(base, "", {golden, infinite}, {0}, {}), InputError);
}

TEST(Adapters, WithMagnitudesAreRefusedBesideOthers) {
  const ModelConfig config = HfModel(kGolden + "base").config();
  std::vector<std::unique_ptr<const PeftAdapter>> adapters;
  adapters.push_back(std::make_unique<const PeftAdapter>(kGolden + "adapter"));
  adapters.push_back(std::make_unique<const PeftAdapter>(kGolden + "dora"));
  EXPECT_THROW(StackedAdapters(std::move(adapters), config), InputError);
}

// A box in the middle of a stack, and a part of it.
TEST(Adapters, AreReadInAnyBoxes) {
  const HfModel base(kGolden + "base");
  std::vector<std::unique_ptr<const PeftAdapter>> adapters;
  for (int i = 0; i < 2; ++i)
    adapters.push_back(std::make_unique<const PeftAdapter>(kGolden + "adapter"));
  const PeftAdapter one(kGolden + "adapter");
  const int64_t r = one.lora().rank;
  const StackedAdapters two(std::move(adapters), base.config());
  EXPECT_EQ(two.columns(1), AdapterColumns(r, 2 * r));
  for (const ModelParameter& p : adapter_parameters(base.config(), one.lora())) {
    const bool b = p.name.ends_with(".lora_B.weight");
    const size_t inner = b ? 1 : 0;
    ModelParameter wide = p;
    wide.shape[inner] *= 2;
    TensorBox box = whole_box(wide.shape);
    box.start[inner] = r - 1;  // the last of the first adapter, the first two of the second
    box.extent[inner] = 3;
    const int64_t n = box.extent[0] * box.extent[1];
    std::vector<float> whole(static_cast<size_t>(2 * n)), got(static_cast<size_t>(n - 2));
    one.read(base.config(), p, whole_box(p.shape), 0,
             Tensor(whole.data(), DType::kF32, Shape{p.shape[0] * p.shape[1]}));
    two.read(base.config(), wide, box, 1, Tensor(got.data(), DType::kF32, Shape{n - 2}));
    for (int64_t at = 1; at + 1 < n; ++at) {
      const int64_t row = at / box.extent[1], column = at % box.extent[1];
      const int64_t from_row = b ? row : (r - 1 + row) % r,
                    from_column = b ? (r - 1 + column) % r : column;
      const float factor = b ? static_cast<float>(one.lora().scale()) : 1.0F;
      EXPECT_FLOAT_EQ(got[static_cast<size_t>(at - 1)],
                      factor * whole[static_cast<size_t>(from_row * p.shape[1] + from_column)])
          << p.name << " " << at;
    }
  }
}

}  // namespace
}  // namespace trireme::test_stacked_adapters
