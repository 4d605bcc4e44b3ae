#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/engine/guarded_drafter.h"
#include "tests/serving/engine/speculation_case.h"
#include "tests/serving/served_texts.h"

namespace trireme::test_guarded_drafter {
namespace {

using namespace test;  // NOLINT: the fixture's words are this file's vocabulary

// Drafts tokens until it runs out of memory.
class FailsLater final : public Drafter {
 public:
  FailsLater(std::unique_ptr<Drafter> drafter, int calls)
      : drafter_(std::move(drafter)), left_(calls) {}
  std::vector<std::vector<int32_t>> propose(std::span<const DraftRequest> requests) override {
    if (--left_ < 0) throw Error("no memory");
    return drafter_->propose(requests);
  }
  void forget(const Sequence& sequence) override { drafter_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> drafter_;
  int left_;
};

TEST(SpeculativeDecoding, GoesOnWithoutADraftThatFails) {
  const std::vector<TextRequest> requests = speculation_requests(8, 37);
  run_threads(1, [&](Communicator& world) {
    const ModelConfig config = speculation_config(ModelFamily::kLlama, 37);
    Rank rank(config, {}, world, DType::kF32, kMaxTokens);
    Rank draft(config, {}, world, DType::kBF16, kMaxTokens);
    BatchingConfig how{.max_sequences = 4, .max_step_tokens = 128, .max_model_len = kMaxTokens};
    const std::vector<Text> want = served(rank, requests, how, 120, false, true);
    how.speculation = {.tokens = 4};
    SchedulerCounts counts;
    auto fails = std::make_unique<FailsLater>(test::drafter_of(draft, how), 5);
    expect_same_texts(served(rank, requests, how, 60, false, true, &counts,
                             std::make_unique<GuardedDrafter>(std::move(fails), nullptr)),
                      want);
    EXPECT_GT(counts.accepted_tokens, 5);
    EXPECT_LT(counts.draft_tokens, 100);
  });
}

}  // namespace
}  // namespace trireme::test_guarded_drafter
