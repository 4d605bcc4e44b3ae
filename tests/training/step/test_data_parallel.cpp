// Data parallelism does not change training: the same global batch on 1, 2 and 4 ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "parallel/comm/world.h"
#include "tests/training/step/train_rank.h"

namespace trireme::test_data_parallel {
namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kGlobalBatch = 8;
constexpr int64_t kLength = 24;

RunConfig config_for(int ranks) {
  RunConfig c;
  c.model.vocab_size = 61;
  c.model.hidden_size = 32;
  c.model.intermediate_size = 48;
  c.model.num_layers = 2;
  c.model.num_heads = 4;
  c.model.num_kv_heads = 2;
  c.model.head_dim = 8;
  c.model.max_positions = kLength;
  c.model.initializer_range = 0.1;
  c.model.attention_dropout = c.model.residual_dropout = 0.1;  // must not depend on the layout
  c.parallel.dp = ranks;
  c.train_batch_size = kGlobalBatch;
  c.micro_batch_size = 1;
  c.gradient_accumulation_steps = kGlobalBatch / ranks;
  c.sequence_length = kLength;
  c.train_steps = kSteps;
  c.optimizer.lr = 5e-3;
  c.scheduler.style = DecayStyle::kConstant;
  c.comm.bucket_bytes = 8192;  // several buckets
  return c;
}

// Sample number n: tokens that follow a rule with exceptions, some targets masked.
MicroBatch sample(int64_t n) {
  MicroBatch b = shape_of_micro_batch(1, kLength);
  const RandomKey key{99, static_cast<uint64_t>(n)};
  int32_t token = static_cast<int32_t>(philox_word(key, 0) % 61);
  for (size_t t = 0; t < static_cast<size_t>(kLength); ++t) {
    b.tokens[t] = token;
    token = (token * 7 + 3) % 61;
    b.targets[t] = philox_word(key, t + 1) % 5 == 0 ? -100 : token;
    b.valid_targets += b.targets[t] >= 0 ? 1 : 0;
    b.positions[t] = static_cast<int32_t>(t);
    b.global_index[t] = n * kLength + static_cast<int64_t>(t);
  }
  return b;
}

struct Trajectory {
  std::vector<double> losses, norms;
  std::vector<float> weights;  // after the last step
  int64_t gradient_bytes = 0;
  std::vector<int64_t> sent;  // of each rank, gradients of the last step
};

Trajectory train(int ranks, const CommOptions& options) {
  Trajectory out;
  out.sent.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_threads(
      ranks,
      [&](Communicator& group) {
        const RunConfig config = config_for(group.size());
        test::TrainRank rank(config, group);
        const Groups& groups = rank.groups;
        for (int64_t s = 0; s < kSteps; ++s) {
          std::vector<MicroBatch> batches;
          for (int64_t i = 0; i < config.gradient_accumulation_steps; ++i)
            batches.push_back(sample(s * kGlobalBatch + i * group.size() + group.rank()));
          group.reset_traffic();
          groups.data->reset_traffic();
          const StepResult result = rank.run(s, batches);
          if (group.rank() != 0) continue;
          out.losses.push_back(result.loss);
          out.norms.push_back(result.grad_norm);
        }
        const int64_t sent = group.traffic()[CommKind::kAllReduce].sent_bytes +
                             groups.data->traffic()[CommKind::kAllReduce].sent_bytes;
        const std::lock_guard lock(mutex);
        out.sent[static_cast<size_t>(group.rank())] = sent;
        if (group.rank() != 0) return;
        const ParameterStore& store = rank.state.store;
        out.gradient_bytes = store.gradient_bytes();
        const float* w = store.flat_values().as<float>();
        out.weights.assign(w, w + store.flat_size());
      },
      options);
  return out;
}

std::vector<CommOptions> layouts() {
  CommOptions window, ring, virtual_nodes;
  ring.algorithm = CommAlgorithm::kRing;
  virtual_nodes.ranks_per_node = 2;
  return {window, ring, virtual_nodes};
}

TEST(DataParallel, LossesEqualOneRank) {
  const Trajectory one = train(1, {});
  EXPECT_LT(one.losses.back(),
            0.8 * one.losses.front());  // the loss falls: the comparison is meaningful
  for (const CommOptions& options : layouts())
    for (int ranks : {2, 4}) {
      const Trajectory many = train(ranks, options);
      ASSERT_EQ(many.losses.size(), one.losses.size());
      for (size_t s = 0; s < one.losses.size(); ++s) {
        EXPECT_NEAR(many.losses[s], one.losses[s], 1e-5 * one.losses[s]) << ranks << " " << s;
        EXPECT_NEAR(many.norms[s], one.norms[s], 1e-4 * one.norms[s]) << ranks << " " << s;
      }
    }
}

TEST(DataParallel, TwoRunsOfOneLayoutAreBitIdentical) {
  for (const CommOptions& options : layouts())
    for (int ranks : {2, 4}) {
      const Trajectory a = train(ranks, options), b = train(ranks, options);
      EXPECT_EQ(a.losses, b.losses);
      EXPECT_EQ(a.weights, b.weights);
    }
}

TEST(DataParallel, RingSendsExactlyTheFormula) {
  CommOptions ring;
  ring.algorithm = CommAlgorithm::kRing;
  for (int ranks : {2, 4}) {
    const Trajectory t = train(ranks, ring);
    // Besides the gradients a step reduces three scalars of 8 bytes: valid targets, loss and square
    // sums.
    const int64_t scalars = 3 * 8;
    int64_t sum = 0;
    for (int64_t bytes : t.sent) sum += bytes;
    EXPECT_EQ(sum, 2 * (ranks - 1) * (t.gradient_bytes + scalars)) << ranks;
    const int64_t buckets = t.gradient_bytes / 8192 + 3;
    const double share = static_cast<double>(sum) / ranks;
    for (int64_t bytes : t.sent)  // within one chunk (of a few bytes) in every bucket
      EXPECT_NEAR(static_cast<double>(bytes), share, static_cast<double>(buckets * 2 * 8));
  }
}

TEST(DataParallel, ADroppedReductionIsNoticed) {
  // Each rank alone has a different half of the batch: the comparison of LossesEqualOneRank must
  // fail.
  const Trajectory one = train(1, {});
  std::vector<double> alone;
  run_threads(1, [&](Communicator& group) {
    RunConfig config = config_for(1);
    config.gradient_accumulation_steps = kGlobalBatch / 2;
    test::TrainRank rank(config, group);
    for (int64_t s = 0; s < kSteps; ++s) {
      std::vector<MicroBatch> batches;
      for (int64_t i = 0; i < config.gradient_accumulation_steps; ++i)
        batches.push_back(sample(s * kGlobalBatch + 2 * i));
      alone.push_back(rank.run(s, batches).loss);
    }
  });
  EXPECT_GT(std::abs(alone.back() - one.losses.back()), 1e-3 * one.losses.back());
}

}  // namespace
}  // namespace trireme::test_data_parallel
