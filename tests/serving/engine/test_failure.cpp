// The cause of a failure is that of its exception, whatever its text.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/engine/failure.h"

namespace trireme::test_failure {
namespace {

template <class Throw>
FailureCause cause_of(const Throw& thrower) {
  try {
    thrower();
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    EXPECT_EQ(failure.why, error.what());
    EXPECT_FALSE(failure.empty());
    return failure.cause;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Failure, HasTheCauseOfItsException) {
  EXPECT_EQ(cause_of([] { TRIREME_CHECK(1 > 2, "order"); }), FailureCause::kFault);
  EXPECT_EQ(cause_of([] { throw Error("gone", ExitCode::kLostRank); }), FailureCause::kLostRanks);
  EXPECT_EQ(cause_of([] { throw Error("check failed: no"); }), FailureCause::kOther);
  EXPECT_EQ(cause_of([] { throw std::runtime_error("check failed"); }), FailureCause::kOther);
  EXPECT_TRUE(Failure().empty());
}

}  // namespace
}  // namespace trireme::test_failure
