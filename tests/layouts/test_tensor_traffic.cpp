// Bytes that tensor-parallel ranks exchange per layer: the formulas of
// docs/design/tensor-parallelism.md.
#include <gtest/gtest.h>

#include "tests/layouts/layout_run.h"

namespace trireme::test::test_tensor_traffic {
namespace {

// Bytes sent within tp groups in a run of one step and one micro-batch, summed over the ranks.
int64_t tensor_bytes(int layers, int tp, bool sequence_parallel, Recompute recompute) {
  LayoutCase c;
  c.sizes.tp = tp;
  c.sizes.sequence_parallel = sequence_parallel;
  c.recompute = recompute;
  c.dtype = DType::kF32;
  RunConfig config = config_of(c);
  config.model.num_kv_heads = 8;  // whole on every layout: no sums over copies
  config.model.num_layers = layers;
  config.sequence_length = 24;  // divides: no padding
  config.train_batch_size = config.gradient_accumulation_steps = 1;
  config.train_steps = 1;
  LayoutRunOptions ring;
  ring.comm.algorithm = CommAlgorithm::kRing;
  return run_training(config, false, ring).traffic.at("tp");
}

TEST(TensorTraffic, OfOneLayerIsTheFormula) {
  for (const int tp : {2, 4})
    for (const bool sp : {false, true})
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        const int64_t a = 24 * 32 * 4;  // bytes of a (T, C) tensor
        const int64_t factor = (sp ? 10 : 8) + (recompute == Recompute::kFull ? 4 : 0);
        // With sequence parallelism the gradients of the two norms' weights are reduced over tp,
        // too.
        const int64_t norms = sp ? 2 * 2 * (tp - 1) * 32 * 4 : 0;
        const int64_t two = tensor_bytes(2, tp, sp, recompute);
        const int64_t three = tensor_bytes(3, tp, sp, recompute);
        EXPECT_EQ(three - two, factor * (tp - 1) * a + norms)
            << "tp " << tp << " sp " << sp << " recompute " << static_cast<int>(recompute);
      }
}

}  // namespace
}  // namespace trireme::test::test_tensor_traffic
