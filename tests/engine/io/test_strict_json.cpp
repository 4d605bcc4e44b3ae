// Hostile JSON: accepts what the library reads, except for its leniencies.
#include <gtest/gtest.h>

#include "engine/io/strict_json.h"

namespace trireme::test_strict_json {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

template <class JsonType>
std::string problem(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_strict_json<JsonType>(text, "x.json", limits);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(StrictJson, ReadsWhatTheLibraryReads) {
  for (const std::string text :
       {"null", "true", "-7", "18446744073709551615", "1.5e3", "\"a\\u00e9\"", "[]", "{}",
        R"([1, [2, {"b": [], "a": {"z": null, "y": [{}, [[]]]}}], "s", -0.0])",
        R"({"b": {"c": [1, {"d": 2}], "a": 3}, "a": [{"b": 1}, {"a": 2}]})"}) {
    EXPECT_EQ(parse_strict_json<Json>(text, "x"), Json::parse(text));
    // Including the order of the members.
    EXPECT_EQ(parse_strict_json<Ordered>(text, "x").dump(), Ordered::parse(text).dump());
  }
}

TEST(StrictJson, RefusesWhatIsNotOneValue) {
  for (const std::string text :
       {"", "{", "[1,]", "{\"a\":}", "{} {}", "nul", "1e999", "\"\xff\""}) {
    EXPECT_TRUE(problem<Json>(text).starts_with("x.json: not valid JSON: ")) << text;
    EXPECT_TRUE(problem<Ordered>(text).starts_with("x.json: not valid JSON: ")) << text;
  }
}

TEST(StrictJson, RefusesAKeyTwiceInOneObject) {
  const std::string twice = "x.json: the key \"a\" appears twice";
  EXPECT_EQ(problem<Json>(R"({"a": 1, "a": 1})"), twice);
  EXPECT_EQ(problem<Ordered>(R"([{"b": {"a": {}, "c": {"a": 1}, "a": 2}}])"), twice);
  EXPECT_EQ(problem<Json>(R"({"a": {"a": [{"a": 1}, {"a": 2}]}})"), "");
}

TEST(StrictJson, BoundsDepthAndKeys) {
  const auto nested = [](int levels) {
    return std::string(static_cast<size_t>(levels), '[') +
           std::string(static_cast<size_t>(levels), ']');
  };
  EXPECT_EQ(problem<Json>(nested(4), {.depth = 4}), "");
  EXPECT_EQ(problem<Json>(nested(5), {.depth = 4}), "x.json: JSON is nested deeper than 4");
  EXPECT_EQ(problem<Json>(std::string(1000000, '['), {.depth = 4}),
            "x.json: JSON is nested deeper than 4");
  const JsonLimits two{.keys_per_object = 2};
  EXPECT_EQ(problem<Json>(R"({"a": {"c": 1, "d": 2}, "b": 2})", two), "");
  EXPECT_EQ(problem<Json>(R"({"a": 1, "b": 2, "c": 3})", two),
            "x.json: more than 2 keys in one object");
}

// Time is linear in the size of the text: quadratic time in the number of members would not finish.
TEST(StrictJson, ReadsObjectsOfAMillionMembers) {
  std::string text = "{";
  for (int i = 0; i < 1000000; ++i) text += concat(i == 0 ? "\"" : ",\"", i, "\":0");
  text += "}";
  EXPECT_EQ(parse_strict_json<Json>(text, "x").size(), 1000000u);
  EXPECT_EQ(parse_strict_json<Ordered>(text, "x").size(), 1000000u);
}

}  // namespace
}  // namespace trireme::test_strict_json
