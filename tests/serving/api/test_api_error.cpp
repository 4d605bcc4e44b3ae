#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "serving/api/api_error.h"

namespace trireme::test_api_error {
namespace {

using Json = nlohmann::ordered_json;

// Expected bytes: param and code are quoted strings, or null.
std::string expected_error(const std::string& message, const std::string& type,
                           const std::string& param, const std::string& code) {
  return concat(R"({"error":{"message":")", message, R"(","type":")", type, R"(","param":)", param,
                R"(,"code":)", code, "}}");
}

TEST(Bodies, HaveTheErrorsOfOpenAi) {
  EXPECT_EQ(
      error_body(ApiError(400, "n must be <= 128", "n", "invalid_value")),
      expected_error("n must be <= 128", "invalid_request_error", R"("n")", R"("invalid_value")"));
  EXPECT_EQ(
      error_body(ApiError(429, "queue full (64 waiting)", "", "queue_full")),
      expected_error("queue full (64 waiting)", "rate_limit_error", "null", R"("queue_full")"));
  EXPECT_EQ(
      error_body(ApiError(401, "Invalid API key", "", "invalid_api_key")),
      expected_error("Invalid API key", "authentication_error", "null", R"("invalid_api_key")"));
  EXPECT_EQ(error_body(500, "rank 3 lost", "engine_failure"),
            expected_error("rank 3 lost", "server_error", "null", R"("engine_failure")"));
  EXPECT_STREQ(error_type(404), "invalid_request_error");
  EXPECT_STREQ(error_type(403), "permission_error");
}

TEST(Bodies, CutAndRepairMessages) {
  const Json error = Json::parse(error_body(400, std::string(5000, 'x') + "\xFF", "c"))["error"];
  EXPECT_EQ(error["message"].get<std::string>().size(), 1003u);
  EXPECT_EQ(Json::parse(error_body(400,
                                   "a\xFF"
                                   "b",
                                   "c"))["error"]["message"],
            "a\xEF\xBF\xBD"
            "b");
}

}  // namespace
}  // namespace trireme::test_api_error
