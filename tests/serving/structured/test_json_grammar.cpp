#include <gtest/gtest.h>

#include "serving/structured/json_grammar.h"
#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_json_grammar {
namespace {

using namespace test;

TEST(JsonObject, IsAnyObject) {
  const auto grammar = compile(Kind::kJsonObject, "");
  EXPECT_TRUE(takes(*grammar, R"({"a": [1, {"b": "\"}"}], "c": -2.5e3})"));
  EXPECT_FALSE(takes(*grammar, "[1]"));
  EXPECT_FALSE(takes(*grammar, R"({"a":1)"));
}

}  // namespace
}  // namespace trireme::test_json_grammar
