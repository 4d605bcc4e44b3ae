// Bytes that one layer keeps from its forward to its backward pass, exactly.
//
// With T tokens (s b of Megatron), C hidden (h), H query and G key/value heads of D elements (a =
// H), inner width F, w bytes per element, t tensor-parallel ranks, which with sequence parallelism
// split the residual stream over z = t (else z = 1), a layer stores
//
//                                 this engine          Megatron: w 2, F = 4 C, H D = C = G D (sbh)
//  input of the block             T C w / z            2    input of the first norm
//  output of the first norm       T C w / z            2    input of q, k, v
//  q, k, v                        T (H + 2 G) D w / t  6
//  scores, softmax, dropout       nothing: tiles       5 a s^2 b: softmax, dropout mask and output
//  log-sum-exp                    4 T H / t            .    flash attention
//  heads' outputs                 T H D w / t          2    input of the output projection
//  dropout masks of two branches  nothing: counters    2
//  input of the second norm       T C w / z            2
//  output of the second norm      T C w / z            2    input of the first product
//  inner width, gated twice       T {1, 2} F w / t     8    before GELU
//  its activation                 T F w / t            8    after GELU
//  1 / deviation, LayerNorm: mean 4 T {1, 2} / z each  .    of two norms
//                                                     34 sbh + 5 a s^2 b
//
// With F = 4 C, GELU and sequence parallelism this engine stores (32 sbh + 4 a s b + 16 s b) / t:
// 34 without the masks, and without what flash attention does not store. Selective recompute drops
// the norms' outputs and the activation (20 sbh; Megatron's drops 5 a s^2 b, which is never stored
// here); full recompute keeps the input, 2 sbh / z.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/layouts/layout_run.h"

namespace trireme::test::test_activations {
namespace {

// Every array is a multiple of the arena's 64 bytes on each of 4 ranks.
RunConfig config_for(bool llama, int tp, bool sequence_parallel, Recompute recompute,
                     int64_t length) {
  LayoutCase c;
  c.llama = llama;
  c.sizes.tp = tp;
  c.sizes.sequence_parallel = sequence_parallel;
  c.recompute = recompute;
  c.dtype = DType::kBF16;
  c.dropout = !llama;  // GPT-2 with dropout, whose masks are not stored
  RunConfig config = config_of(c);
  config.model.num_layers = 3;
  config.model.num_kv_heads = llama ? 4 : 8;
  config.model.head_dim = 16;
  config.model.hidden_size = 96;
  config.model.intermediate_size = 160;
  config.model.max_positions = 256;
  config.micro_batch_size = 2;
  config.gradient_accumulation_steps = 1;
  config.train_batch_size = 2;
  config.sequence_length = length;
  return config;
}

int64_t closed_form(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  const int64_t t = config.parallel.tp, z = config.parallel.sequence_parallel ? t : 1, w = 2;
  const int64_t tokens = config.micro_batch_size * config.sequence_length;
  const int64_t stream = tokens * model.hidden_size * w / z;
  if (config.recompute == Recompute::kFull) return stream;
  const int64_t heads = model.num_heads, kv_heads = model.num_kv_heads, width = model.head_dim;
  const int64_t qkv = tokens * (heads + 2 * kv_heads) * width * w / t;
  const int64_t out = tokens * heads * width * w / t;
  const int64_t lse = 4 * tokens * heads / t;
  const int64_t inner = tokens * (gpt2 ? 1 : 2) * model.intermediate_size * w / t;
  const int64_t act = tokens * model.intermediate_size * w / t;
  const int64_t statistics = 2 * (gpt2 ? 2 : 1) * 4 * tokens / z;
  const int64_t kept = 2 * stream + qkv + out + lse + inner + statistics;
  return config.recompute == Recompute::kSelective ? kept : kept + 2 * stream + act;
}

// Bytes of the arena in use after the forward pass of one micro-batch, on each rank.
std::vector<int64_t> kept_bytes(const RunConfig& config) {
  std::mutex mutex;
  std::vector<int64_t> bytes(static_cast<size_t>(world_size(config.parallel)));
  on_ranks(config, {}, [&](LayoutRank& rank) {
    const auto scalar = [](int64_t n) { return Tensor(nullptr, DType::kF64, Shape{n}); };
    TrainStage stage(rank.state.model, rank.state.store, rank.groups, rank.ctx,
                     {config.recompute, 1, config.sequence_length, false});
    const std::vector<MicroBatch> batches = {
        shape_of_micro_batch(config.micro_batch_size, config.sequence_length)};
    rank.ctx.mode = Mode::kTrain;
    rank.state.store.begin_gradients();
    rank.ctx.arena.begin_planning();
    stage.begin(batches, {scalar(1), scalar(1), {}, scalar(4)}, [](int, bool) {});
    stage.forward(0, 0, {});
    {
      const std::lock_guard lock(mutex);
      bytes[static_cast<size_t>(rank.groups.world.rank())] = rank.ctx.arena.in_use();
    }
    stage.backward_input(0, 0, {}).reset();
    stage.backward_weight(0, 0);
    rank.ctx.arena.end_planning();
  });
  return bytes;
}

TEST(Activations, OfOneLayerAreTheClosedForm) {
  for (const bool llama : {false, true})
    for (const int tp : {1, 2, 4})
      for (const bool sequence_parallel : {false, true})
        for (const Recompute recompute :
             {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
          for (const int64_t length : {64, 128}) {  // linear: twice the tokens, twice the bytes
            if (sequence_parallel && tp == 1) continue;
            RunConfig config = config_for(llama, tp, sequence_parallel, recompute, length);
            const std::vector<int64_t> three = kept_bytes(config);
            config.model.num_layers = 2;
            const std::vector<int64_t> two = kept_bytes(config);
            for (size_t rank = 0; rank < three.size(); ++rank)
              EXPECT_EQ(three[rank] - two[rank], closed_form(config))
                  << (llama ? "llama" : "gpt2") << " tp " << tp << " sp " << sequence_parallel
                  << " recompute " << static_cast<int>(recompute) << " length " << length
                  << " rank " << rank;
          }
}

// Korthikanti et al. 2022: 34 sbh, minus two masks, plus the statistics of flash attention and of
// the norms.
TEST(Activations, OfMegatronsShapeAreItsFormulaWithoutMasks) {
  RunConfig config = config_for(false, 2, true, Recompute::kNone, 128);
  config.model.hidden_size = config.model.num_heads * config.model.head_dim;
  config.model.intermediate_size = 4 * config.model.hidden_size;
  const int64_t sb = 2 * 128, h = config.model.hidden_size, a = config.model.num_heads;
  EXPECT_EQ(closed_form(config), (32 * sb * h + 4 * a * sb + 16 * sb) / 2);
  const std::vector<int64_t> three = kept_bytes(config);
  config.model.num_layers = 2;
  EXPECT_EQ(three[0] - kept_bytes(config)[0], closed_form(config));
}

}  // namespace
}  // namespace trireme::test::test_activations
