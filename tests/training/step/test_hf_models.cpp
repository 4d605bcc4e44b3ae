// Models of every family compared with HuggingFace's transformers
// (tests/golden/make_transformers.py): logits, loss and every gradient of a step, with several
// layouts, and decoding token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "parallel/comm/world.h"
#include "parallel/pipeline/make_schedule.h"
#include "serving/engine/step_stage.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/training/step/hf_case.h"
#include "training/step/batch_shard.h"
#include "training/step/train_step.h"
#include "transformer/families/config_json.h"

namespace trireme::test::test_hf_models {
namespace {

// Tolerances: logits relative to the largest one; the loss relative to itself, and gradients in
// their norm. Both sides compute in float32, in another order.
constexpr double kLogits = 1e-4, kLoss = 1e-5, kGradient = 1e-4;

struct NamedSizes {
  const char* name;
  ParallelSizes sizes;
};

std::vector<NamedSizes> layouts(bool experts) {
  std::vector<NamedSizes> out = {{"one rank", {}},
                                 {"tp 2", {.tp = 2}},
                                 {"tp 2, sequence parallel", {.tp = 2, .sequence_parallel = true}},
                                 {"cp 2", {.cp = 2}},
                                 {"pp 2", {.pp = 2}},
                                 {"tp 2 pp 2", {.tp = 2, .pp = 2}}};
  if (experts) out.push_back({"ep 2 over tp 2", {.tp = 2, .ep = 2}});
  return out;
}

// The hidden states of a micro-batch through a pipeline, and its logits where the head is.
class LogitsStage final : public PipelineStage {
 public:
  LogitsStage(const Model& model, ParameterStore& store, const Groups& groups, Ctx& ctx,
              int64_t sequence_length)
      : model_(model),
        store_(store),
        groups_(groups),
        ctx_(ctx),
        batches_(ctx, sequence_length, model.config().attention_chunk) {}

  std::vector<double> run(const std::vector<MicroBatch>& batches) {
    batches_.place(batches);
    PipelineExecutor executor(
        make_schedule(ScheduleKind::kForwardOnly, groups_.layout.pp.size, 1, 1), *groups_.pp);
    executor.run(*this, ctx_);
    return logits_;
  }
  Activation forward(int chunk, int micro_batch, Activation x) override {
    const Tokens tokens = batches_.tokens(micro_batch);
    Pass pass{ctx_, store_, tokens, &groups_};
    Activation y = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
    if (!model_.has_head(chunk)) return y;
    const Activation logits = ctx_.allocate("logits", sum_dtype(store_.dtype()),
                                            Shape{tokens.count, model_.config().vocab_size});
    model_.logits(pass, std::move(y), logits);
    logits_ = to_doubles(logits);
    return {};
  }
  Activation allocate_message(int /*chunk*/, int micro_batch, bool /*gradient*/) override {
    const int64_t rows =
        std::ssize(batches_.batch(micro_batch).tokens) / groups_.layout.token_split().size;
    return ctx_.allocate("hidden", store_.dtype(), Shape{rows, model_.config().hidden_size});
  }
  Activation backward_input(int, int, Activation) override { return {}; }
  void backward_weight(int, int) override {}

 private:
  const Model& model_;
  ParameterStore& store_;
  const Groups& groups_;
  Ctx& ctx_;
  DeviceBatches batches_;
  std::vector<double> logits_;
};

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

double largest(const std::vector<double>& v) {
  double out = 0;
  for (const double x : v) out = std::max(out, std::abs(x));
  return out;
}

// One rank of a layout with the case's weights.
struct HfRank {
  HfRank(const HfCase& hf, Communicator& world, const ParallelSizes& sizes, DType dtype)
      : config(hf.config(sizes, dtype)),
        groups(world, sizes, kv_head_copies(config.model, sizes.tp)),
        ctx(1, "test"),
        state(config, groups.layout) {
    state.allocate(ctx);
    hf.source().load(ctx, state.model, state.store);
  }
  RunConfig config;
  Groups groups;
  Ctx ctx;
  TrainState state;
};

// Compares the rows of a rank's logits that are tokens with those of the whole batch.
void expect_logits(const HfCase& hf, HfRank& rank) {
  const Layout& layout = rank.groups.layout;
  std::vector<MicroBatch> local(1);
  fill_batch_shard(hf.batch(), hf.row_length(), layout, rank.config.model, local[0]);
  LogitsStage stage(rank.state.model, rank.state.store, rank.groups, rank.ctx, hf.row_length());
  const std::vector<double> got = stage.run(local);
  if (layout.pp.index + 1 < layout.pp.size) return;
  const std::vector<double> want = to_doubles(hf.expected().tensor("logits"));
  const auto v = static_cast<size_t>(rank.config.model.vocab_size);
  ASSERT_EQ(got.size(), local[0].tokens.size() * v);
  double worst = 0;
  size_t compared = 0;
  for (size_t t = 0; t < local[0].tokens.size(); ++t) {
    const int64_t row = local[0].global_index[t];
    if (row < 0) continue;  // padding
    ++compared;
    for (size_t i = 0; i < v; ++i)
      worst = std::max(worst, std::abs(got[t * v + i] - want[static_cast<size_t>(row) * v + i]));
  }
  if (layout.cp.size == 1) {
    EXPECT_EQ(compared * v, want.size());
  }
  EXPECT_LE(worst, kLogits * largest(want));
}

// A key's bias has a zero gradient by mathematics: hence the share of the global norm.
void expect_gradients(const HfCase& hf, const HfRank& rank, double global_norm) {
  const ParameterStore& store = rank.state.store;
  for (size_t h = 0; h < store.specs().size(); ++h) {
    const ParameterSpec& spec = store.specs()[h];
    const std::vector<double> whole = hf.gradient(spec);
    const ElementIndex index = spec.element_index();
    std::vector<double> difference =
        to_doubles(store.view_in(store.flat_gradients(), static_cast<ParamHandle>(h)));
    for (size_t i = 0; i < difference.size(); ++i)
      difference[i] -= whole[static_cast<size_t>(index.of(static_cast<int64_t>(i)))];
    EXPECT_LE(norm(difference), kGradient * (norm(whole) + 1e-3 * global_norm)) << spec.name;
  }
}

void expect_step(const HfCase& hf, HfRank& rank) {
  rank.state.optimizer.initialize(rank.ctx);
  TrainStep step(rank.config, rank.state, rank.groups, rank.ctx);
  const ArenaPlan plan = step.plan();
  rank.ctx.arena.reserve(plan.capacity);
  const StepResult result = step.run(0, {hf.batch()}, plan);
  const double want = to_doubles(hf.expected().tensor("loss"))[0];
  EXPECT_NEAR(result.loss, want, kLoss * want);
  expect_gradients(hf, rank, result.grad_norm);
}

class HfModels : public ::testing::TestWithParam<std::string> {};

TEST_P(HfModels, LogitsLossAndGradientsUnderEveryLayout) {
  const HfCase hf(GetParam());
  for (const auto& [name, sizes] : layouts(hf.source().config().moe.experts > 0)) {
    run_threads(world_size(sizes), [&, name = name, sizes = sizes](Communicator& world) {
      SCOPED_TRACE(concat(name, ", rank ", world.rank()));
      HfRank rank(hf, world, sizes, DType::kF32);
      expect_logits(hf, rank);
      expect_step(hf, rank);
    });
  }
}

// The first document again, part of it at once and then token by token with the KV cache.
TEST_P(HfModels, CachedDecodingIsTheWholeForward) {
  const HfCase hf(GetParam());
  const MicroBatch batch = hf.batch();
  const std::vector<double> logits = to_doubles(hf.expected().tensor("logits"));
  const auto length = static_cast<size_t>(batch.cu_seqlens[1]);
  for (const int tp : {1, 2}) {
    run_threads(tp, [&](Communicator& world) {
      SCOPED_TRACE(concat("tp ", tp));
      HfRank rank(hf, world, {.tp = tp}, DType::kF32);
      rank.ctx.mode = Mode::kInfer;
      constexpr size_t kPrompt = 5;  // shorter than the windows, which begin to move while decoding
      constexpr int64_t kBlockTokens = 4;
      StepLimits limits{.tokens = kPrompt, .sequences = 1, .length = static_cast<int64_t>(length)};
      limits.block_tokens = kBlockTokens;
      limits.windows = kv_windows(rank.state.model.config(), limits.length);
      limits.blocks = limits.blocks_of_sequence();
      size_t done = 0;
      double worst = 0;
      int64_t read = 0;
      const auto compare = [&](int, int64_t, std::span<const float> got) {
        ++read;
        for (size_t i = 0; i < got.size(); ++i)
          worst = std::max(worst, std::abs(got[i] - logits[(done - 1) * got.size() + i]));
      };
      StepStage stage(rank.state.model, rank.state.store, rank.ctx, &rank.groups, limits, 1, 1,
                      compare, 1, {});
      while (done < length) {
        const size_t count = done == 0 ? kPrompt : 1;
        const auto last = static_cast<int32_t>(count - 1);
        const auto past = static_cast<int64_t>(done);
        // Each group has as many blocks of the cache as it needs at a time, used in turn.
        std::vector<BlockTable> tables(limits.windows.size());
        int64_t before = 0;
        for (size_t group = 0; group < tables.size(); ++group) {
          BlockTable& table = tables[group];
          table.first = dropped_blocks(past, limits.windows[group], kBlockTokens);
          while (table.end() * kBlockTokens < past + static_cast<int64_t>(count))
            table.blocks.push_back(
                static_cast<int32_t>(before + table.end() % limits.table_blocks(group)));
          before += limits.table_blocks(group);
        }
        const StepBatch::Part part{std::span(batch.tokens).subspan(done, count), past, tables};
        stage.batch(0).write(rank.ctx, {&part, 1}, {&last, 1}, 0);
        stage.forward(0, 0, {});
        done += count;
        stage.end();
      }
      EXPECT_EQ(read, static_cast<int64_t>(length - kPrompt + 1));
      EXPECT_LE(worst, kLogits * largest(logits));
    });
  }
}

// A config.json survives the round trip through a checkpoint's state.
TEST_P(HfModels, ConfigurationsComeBack) {
  const ModelConfig config = HfCase(GetParam()).source().config();
  ConfigReport report;
  EXPECT_EQ(read_model_config(model_config_to_json(config), "", report), config);
  EXPECT_TRUE(report.ok() && report.notes().empty());
}

INSTANTIATE_TEST_SUITE_P(Transformers, HfModels, ::testing::ValuesIn(golden_models()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace trireme::test::test_hf_models
