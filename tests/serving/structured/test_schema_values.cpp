// Values of enum and const beside other keywords.
#include <gtest/gtest.h>

#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_schema_values {
namespace {

using namespace test;

// An enum of `count` values, each `before`, its number and `after`.
std::string enum_of(int count, const std::string& before, const std::string& after) {
  std::string all;
  for (int i = 0; i < count; ++i) all += concat(i == 0 ? "" : ",", before, i, after);
  return concat(R"("enum":[)", all, "]");
}

// The values of an enum share the automata of patterns and formats.
TEST(SchemaValues, LongEnumsBesideExpressions) {
  expect_schema(concat("{", enum_of(1000, R"("host)", R"(.example")"), R"(,"format":"hostname"})"),
                {R"("host0.example")", R"("host999.example")"}, {R"("host1000.example")"});
  expect_schema(concat("{", enum_of(1000, R"("http://a/)", R"(")"),
                       R"(,"format":"uri","pattern":"[02468]$","minLength":11})"),
                {R"("http://a/10")", R"("http://a/998")"}, {R"("http://a/8")", R"("http://a/11")"});
  expect_schema(concat("{", enum_of(1000, R"({"to":"a)", R"(@b.cd"})"),
                       R"(,"properties":{"to":{"format":"email","pattern":"^a.*7@"}}})"),
                {R"({"to":"a7@b.cd"})", R"({"to":"a997@b.cd"})"}, {R"({"to":"a8@b.cd"})"});
}

// One schema of many has the same automata in each place.
TEST(SchemaValues, EnumsOfManySchemasShareAutomata) {
  std::string properties;
  for (int i = 0; i < 100; ++i)
    properties += concat(i == 0 ? "" : ",", R"("p)", i, R"(":{"enum":["a)", i,
                         R"(.b","-"],"format":"hostname","pattern":"b"})");
  expect_schema(concat(R"({"properties":{)", properties, R"(},"additionalProperties":false})"),
                {R"({"p0":"a0.b","p99":"a99.b"})"}, {R"({"p0":"-"})", R"({"p0":"a1.b"})"});
}

}  // namespace
}  // namespace trireme::test_schema_values
