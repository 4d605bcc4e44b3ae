#include <gtest/gtest.h>

#include "serving/text/stop_matcher.h"

namespace trireme::test_stop_matcher {
namespace {

TEST(StopMatcher, HoldsTheLongestBeginning) {
  StopMatcher matcher({"abab", "ba"});
  EXPECT_EQ(matcher.push('a'), -1);
  EXPECT_EQ(matcher.held(), 1u);
  EXPECT_EQ(matcher.push('b'), -1);
  EXPECT_EQ(matcher.held(), 2u);
  EXPECT_EQ(matcher.push('a'), 1);
  EXPECT_EQ(matcher.stop(1), "ba");
}

}  // namespace
}  // namespace trireme::test_stop_matcher
