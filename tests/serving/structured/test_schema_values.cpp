// Values of enum and const beside other keywords, and keywords of several schemas that hold
// together.
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

TEST(SchemaValues, SeveralExpressionsThatHoldTogether) {
  for (const char* values : {R"("enum":["ab","axb","a","b",7])", R"("enum":["ab",7,"axb"])"}) {
    const std::vector<std::string> good = {R"("ab")", R"("axb")", "7"}, bad = {R"("a")", R"("b")"};
    expect_schema(concat("{", values, R"(,"allOf":[{"pattern":"^a"},{"pattern":"b$"}]})"), good,
                  bad);
    expect_schema(concat(R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"},{)", values, "}]}"), good,
                  bad);
    expect_schema(concat(R"({"$ref":"#/$defs/a","pattern":"b$",)", values,
                         R"(,"$defs":{"a":{"pattern":"^a"}}})"),
                  good, bad);
    expect_schema(concat(R"({"$ref":"#/$defs/a","pattern":"b$",)",
                         R"("$defs":{"a":{"pattern":"^a",)", values, "}}}"),
                  good, bad);
  }
  expect_schema(R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"},{"const":"ab"}]})", {R"("ab")"}, {});
  EXPECT_EQ(
      refused(Kind::kJsonSchema, R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"},{"const":"a"}]})"),
      "no text at all satisfies it");
  expect_schema(R"({"allOf":[{"format":"uri"},{"format":"uri-reference"},)"
                R"({"enum":["http://a.b","/a","-"]}]})",
                {R"("http://a.b")"}, {R"("/a")", R"("-")"});
}

TEST(SchemaValues, SeveralExpressionsBesideOneOf) {
  expect_schema(R"({"$ref":"#/$defs/a","pattern":"b$","type":"string",)"
                R"("oneOf":[{"maxLength":2},{"minLength":3}],"$defs":{"a":{"pattern":"^a"}}})",
                {R"("ab")", R"("axb")"}, {R"("a")", R"("b")", R"("axx")"});
  expect_schema(R"({"allOf":[{"format":"uri"},{"format":"uri-reference"}],"type":"string",)"
                R"("oneOf":[{"maxLength":9},{"minLength":10}]})",
                {R"("http://a")", R"("http://a.bc")"}, {R"("/a")"});
  expect_schema(R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"}],)"
                R"("oneOf":[{"enum":["ab","a"]},{"const":"axb"},{"type":"null"}]})",
                {R"("ab")", R"("axb")", "null"}, {R"("a")"});
}

// A value is checked as it is: schemas beside it need not merge, nor exclude each other.
TEST(SchemaValues, SchemasBesideValuesNeedNotMerge) {
  expect_schema(R"({"enum":[4,6,9,12],"allOf":[{"multipleOf":2},{"multipleOf":3}]})", {"6", "12"},
                {"4", "9"});
  expect_schema(R"({"enum":[{"a":1,"b":2},{"a":1},{"c":1}],"allOf":[{"properties":{"a":true,)"
                R"("b":true},"additionalProperties":false},{"properties":{"b":{"const":3}}}]})",
                {R"({"a":1})"}, {R"({"a":1,"b":2})", R"({"c":1})"});
  expect_schema(R"({"enum":[[1],[2],[2,3]],"$ref":"#/$defs/a","items":{"minimum":2},)"
                R"("$defs":{"a":{"prefixItems":[{"type":"integer"}],"items":false}}})",
                {"[2]"}, {"[1]", "[2,3]"});
  expect_schema(R"({"enum":["a","b","ab"],"oneOf":[{"pattern":"a"},{"pattern":"b"}]})",
                {R"("a")", R"("b")"}, {R"("ab")"});
  expect_schema(R"({"const":7,"anyOf":[{"minimum":9},{"maximum":8}],"oneOf":[true,{"minimum":8}]})",
                {"7"}, {});
}

TEST(SchemaValues, ArraysOfExpressionsInSchemasAreRefused) {
  for (const char* schema :
       {R"({"pattern":["a","b"]})", R"({"enum":["ab"],"pattern":["a","b"]})",
        R"({"enum":["ab"],"allOf":[{"pattern":["a","b"]}]})",
        R"({"allOf":[{"pattern":["a","b"]},{"const":"ab"}]})",
        R"({"oneOf":[{"pattern":["a","b"]},{"type":"null"}],"pattern":"a"})"}) {
    const std::string why = refused(Kind::kJsonSchema, schema);
    EXPECT_NE(why.find("\"pattern\" must be a string"), std::string::npos) << schema << ": " << why;
  }
}

}  // namespace
}  // namespace trireme::test_schema_values
