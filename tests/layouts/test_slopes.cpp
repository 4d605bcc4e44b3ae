// Gradients of whole models are the slopes of their loss, where no other program's numbers say so.
#include <gtest/gtest.h>

#include "tests/layouts/finite_differences.h"
#include "tests/layouts/layout_case.h"

namespace trireme::test::test_slopes {
namespace {

int compared(const char* variant, bool dropout) {
  LayoutCase c;
  c.variant = variant;
  c.dropout = dropout;
  RunConfig config = config_of(c);
  config.model.num_layers = 3;
  return expect_slopes(config);
}

TEST(Slopes, ScaledBranchesAndLogits) {
  EXPECT_GT(compared("granite", false), 20);
  EXPECT_GT(compared("granite", true), 20) << "dropout of the branches before their factor";
}

TEST(Slopes, NormsOfAllHeadsAndOfOutputsOnly) { EXPECT_GT(compared("olmo2", false), 20); }
TEST(Slopes, SoftCaps) { EXPECT_GT(compared("gemma2", false), 20); }
TEST(Slopes, PositionsOnAPartOfTheHead) { EXPECT_GT(compared("glm4", false), 20); }
TEST(Slopes, LayersWithoutPositions) { EXPECT_GT(compared("smollm3", false), 20); }

}  // namespace
}  // namespace trireme::test::test_slopes
