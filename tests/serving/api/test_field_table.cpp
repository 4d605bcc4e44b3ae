// Values of fields: their kinds and ranges.
#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/api/api_error.h"
#include "serving/api/endpoints/completions.h"

namespace trireme::test_field_table {
namespace {

// Error message; "": the completion request is accepted.
std::string message_of(const std::string& body) {
  try {
    parse_completion(body);
  } catch (const ApiError& error) {
    return error.what();
  }
  return "";
}

TEST(Fields, NameTheRangeOfIntegers) {
  const auto seed = [](const std::string& number) {
    return message_of(concat(R"({"model":"m","prompt":"hi","seed":)", number, "}"));
  };
  const std::string high = "seed must be <= 9223372036854775807";
  for (const char* number : {"9223372036854775808", "18446744073709551615", "18446744073709551616",
                             "123456789012345678901234567890", "1e19", "9223372036854775808.0"})
    EXPECT_EQ(seed(number), high) << number;
  for (const char* number : {"-9223372036854775809", "-18446744073709551616", "-1e19"})
    EXPECT_EQ(seed(number), "seed must be >= -9223372036854775808") << number;
  EXPECT_EQ(
      seed("1e17"),
      "seed cannot be read exactly: integers beyond 9007199254740992 must have neither a decimal "
      "point nor an exponent");
  EXPECT_EQ(seed("1.5"), "seed: expected an integer, got a number");
  EXPECT_EQ(seed("9007199254740992.0"), "");
}

}  // namespace
}  // namespace trireme::test_field_table
