// The response for a failed sequence depends on the cause of the failure.
#include <gtest/gtest.h>

#include "serving/http/service/generation_task.h"

namespace trireme::test_generation_task {
namespace {

void expect_error(const Failure& failure, bool may_retry, int status, const std::string& code,
                  const std::string& message) {
  const ApiError error = engine_error(failure, may_retry);
  EXPECT_EQ(error.status(), status) << message;
  EXPECT_EQ(error.error_code(), code) << message;
  EXPECT_EQ(std::string(error.what()), message);
}

TEST(EngineError, FollowsFromTheCause) {
  expect_error({"a rank is lost"}, true, 503, "engine_failure", "a rank is lost");
  expect_error({"not finite"}, false, 500, "engine_failure", "not finite");
  expect_error({"none left", FailureCause::kAllForbidden}, false, 400, "no_token_allowed",
               "none left");
  expect_error({"too much", FailureCause::kNoRuleMemory}, true, 503, "server_overloaded",
               "too much");
}

// The text of a failed check names the program's files.
TEST(EngineError, KeepsTheTextOfAFaultFromClients) {
  expect_error({"engine.cpp:1: check failed", FailureCause::kFault}, false, 500, "engine_failure",
               "internal error of the server");
}

}  // namespace
}  // namespace trireme::test_generation_task
