#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "optim/optimizers.h"

namespace trireme::test_optimizers {
namespace {

TEST(Optimizers, MakeWhatTheirRowSays) {
  ASSERT_EQ(optimizers().front().name, std::string(default_optimizer()->name()));
  for (const OptimizerRow& row : optimizers()) {
    EXPECT_STREQ(row.make()->name(), row.name);
    EXPECT_STREQ(row.make()->clone()->name(), row.name);
    EXPECT_STREQ(optimizer_row(row.name).name, row.name);
    for (const char* other : unavailable_optimizers()) EXPECT_STRNE(other, row.name);
  }
  EXPECT_THROW(optimizer_row("Muon"), Error);
}

}  // namespace
}  // namespace trireme::test_optimizers
