// Out-of-range indices: the host cannot check them before an op on a GPU, so that the op must
// neither fault nor return a plausible result.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/attention/rotary.h"
#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/moe/expert_rows.h"
#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/embedding.h"
#include "engine/ops/rows/transfer.h"
#include "tests/cuda/ops_session.h"

namespace trireme::test {
namespace {

constexpr DType kF32 = DType::kF32, kI32 = DType::kI32;

// The body writes the expected result when it runs on the CPU.
std::string failure_of(const std::function<void(OpRun&)>& body) {
  return check_case({.op = "bad index", .body = body}, shared_gpu()).failure;
}

constexpr int64_t kTokens = 4, kEntries = 3, kColumns = 8;
const std::vector<double> kIds = {1, -1, 2, kEntries};

TEST(BadIndex, MakesALookupNaN) {
  EXPECT_EQ(failure_of([](OpRun& run) {
              const Tensor y = run.updated("y", kF32, {kTokens, kColumns}, exact());
              const ConstTensor table = run.random("table", kF32, {kEntries, kColumns});
              const ConstTensor ids = run.values("ids", kI32, {kTokens}, kIds);
              if (run.ctx.gpu != nullptr) {
                embedding_forward(run.ctx, y, table, ids, false);
                return;
              }
              for (int64_t i = 0; i < y.numel(); ++i) {
                const int64_t t = i / kColumns, id = t == 0 ? 1 : 2;
                y.as<float>()[i] =
                    t % 2 == 1 ? NAN : table.as<float>()[id * kColumns + i % kColumns];
              }
            }),
            "");
}

TEST(BadIndex, IsLeftOutOfTheGradient) {
  EXPECT_EQ(failure_of([](OpRun& run) {
              const Tensor d = run.output("d_table", kF32, {kEntries, kColumns}, exact());
              const bool gpu = run.ctx.gpu != nullptr;
              // The oracle gets only the tokens with valid ids.
              const int64_t n = gpu ? kTokens : 2;
              std::vector<double> dy(static_cast<size_t>(n * kColumns), 7.0);
              for (size_t i = 0; i < dy.size(); ++i) {
                const auto t = static_cast<int64_t>(i) / kColumns;
                if (t == (gpu ? 2 : 1)) dy[i] = 0.5;
              }
              const ConstTensor ids =
                  gpu ? run.values("ids", kI32, {n}, kIds) : run.values("ids", kI32, {n}, {1, 2});
              embedding_backward(run.ctx, d, run.values("dy", kF32, {n, kColumns}, dy), ids, false);
            }),
            "");
}

TEST(BadIndex, MakesARotationNaN) {
  EXPECT_EQ(
      failure_of([](OpRun& run) {
        const Tensor x = run.updated("x", kF32, {2, 1, kColumns}, exact());
        const ConstTensor table = run.random("cos_sin", kF32, {kEntries, kColumns});
        if (run.ctx.gpu != nullptr)
          rotary(run.ctx, x, table, run.values("positions", kI32, {2}, {kEntries, -1}), false);
        else
          std::fill_n(x.as<float>(), x.numel(), NAN);
      }),
      "");
}

TEST(BadIndex, CopiesNothing) {
  EXPECT_EQ(failure_of([](OpRun& run) {
              const Tensor y = run.updated("y", kF32, {kEntries, kColumns}, exact());
              const ConstTensor x = run.random("x", kF32, {kTokens, kColumns});
              if (run.ctx.gpu != nullptr) {
                copy_rows(run.ctx, y, x, run.values("y_rows", kI32, {kTokens}, kIds));
                return;
              }
              for (int64_t c = 0; c < kColumns; ++c) {
                y.as<float>()[kColumns + c] = x.as<float>()[c];
                y.as<float>()[2 * kColumns + c] = x.as<float>()[2 * kColumns + c];
              }
            }),
            "");
}

// Targets outside the columns: the sum of losses is not finite, the other rows are correct.
TEST(BadIndex, MakesALossNotFinite) {
  constexpr int64_t kColumnsOfTheLast = 5, kRows = 3;
  for (const double bad : {-7.0, static_cast<double>(kColumnsOfTheLast), 1e9})
    EXPECT_EQ(
        failure_of([&](OpRun& run) {
          const bool gpu = run.ctx.gpu != nullptr;
          const Tensor is_finite = run.updated("loss is finite", DType::kF64, {1}, exact());
          const Tensor losses = run.output("good losses", DType::kF64, {2}, whole(5));
          const ConstTensor logits = run.random("logits", DType::kF64, {kRows, kColumnsOfTheLast});
          const ConstTensor scale = run.values("scale", DType::kF64, {1}, {0.5});
          const Tensor sum = run.updated_values("sum", DType::kF64, {1}, exact(), {0.0});
          const Tensor each = run.updated("each", DType::kF64, {kRows}, exact());
          softmax_cross_entropy(run.ctx, sum, each, {}, logits,
                                run.values("targets", kI32, {kRows}, {1, gpu ? bad : 2.0, 4}),
                                scale, kColumnsOfTheLast);
          const auto total = to_host<double>(run.ctx, sum), all = to_host<double>(run.ctx, each);
          const double good[] = {all[0], all[2]};
          const double finite = gpu == std::isfinite(total[0]) ? 1.0 : 0.0;
          const double none[] = {0.0, 0.0, 0.0};
          transfer(run.ctx, losses, ConstTensor(good, DType::kF64, Shape{2}));
          transfer(run.ctx, is_finite, ConstTensor(&finite, DType::kF64, Shape{1}));
          transfer(run.ctx, sum, ConstTensor(none, DType::kF64, Shape{1}));
          transfer(run.ctx, each, ConstTensor(none, DType::kF64, Shape{kRows}));
        }),
        "")
        << bad;
}

TEST(BadIndex, SendsNoTokenToAnExpertThatDoesNotExist) {
  EXPECT_EQ(failure_of([](OpRun& run) {
              const bool gpu = run.ctx.gpu != nullptr;
              const Tensor pairs = run.updated("pairs", kI32, {6}, exact());
              order_by_expert(run.ctx, pairs, run.output("places", kI32, {3, 2}, exact()),
                              run.output("counts", DType::kI64, {3}, exact()),
                              run.values("experts", kI32, {3, 2},
                                         gpu ? std::vector<double>{0, 3, 2, -9, 1e9, 0}
                                             : std::vector<double>{0, -1, 2, -1, -1, 0}));
            }),
            "");
}

}  // namespace
}  // namespace trireme::test
