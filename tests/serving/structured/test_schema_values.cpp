// Values of enum and const combined with other keywords, and keywords of several schemas that apply
// together.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

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

// Equal schemas have the same automata everywhere.
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
      "no text satisfies the constraint");
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

// A value is validated directly: the other schemas need not merge, nor exclude each other.
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

// Values of enum and const may have any form of their format, not only the generated one.
TEST(SchemaValues, GivenValuesHaveAnyFormOfTheirFormat) {
  using Strings = std::vector<std::string>;
  const std::vector<std::tuple<const char*, Strings, Strings>> formats = {
      {"ipv6",
       {"::1", "::", "2001:DB8::8a2e:370:7334", "1::", "::ffff:192.0.2.1", "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:1.2.3.4", "1::8"},
       {":::", "1::2::3", "1:2:3:4:5:6:7", "12345::", "::256.1.1.1", "1:2:3:4:5:6:7::8"}},
      {"uri",
       {"mailto:a@b.c", "urn:isbn:0451450523", "ftp://[::1]:21/x", "s3://bucket/key?a=b#c",
        "http://user:p%20w@host", "data:text/plain,x", "file:///etc/x"},
       {"/a", "http://a b", "http://a/%zz", "1a:b", "http://[::1", ""}},
      {"uri-reference", {"../a?b#c", "", "#x", "//host/p", "urn:x", "a/b:c"}, {"a b", "%"}},
      {"iri", {"http://é.example/日本"}, {"é"}},
      {"email",
       {"o'neil+tag@sub.example.com", "a@localhost", "first.last@x.io", "\"a b\"@c.d"},
       {"a@", "a..b@c.d", "a@-b.c", "@c.d"}},
      {"idn-email", {"ü@bücher.example"}, {"a@"}},
      {"hostname", {"xn--bcher-kva.example", "a.b.c.d.e.f", "X1"}, {"-a", "a..b", "a_b", ""}},
      {"idn-hostname", {"bücher.example"}, {"a b"}},
      {"uuid", {"01234567-89AB-cdef-0123-456789abcdef"}, {"0123456789abcdef0123456789abcdef"}},
      {"date-time",
       {"1999-12-31t23:59:60z", "2024-02-29T00:00:00.1234567+05:30"},
       {"2024-02-29", "2023-02-29T00:00:00Z", "2024-01-01T12:59:60Z"}},
      {"duration",
       {"P1Y2M3DT4H5M6S", "PT36H", "P3W", "P1M", "P1DT1S"},
       {"P", "PT", "P1H", "P1YT", "P1W1D"}},
      {"json-pointer", {"", "/a~1b/é \" x", "/"}, {"a", "/~2"}},
      {"relative-json-pointer", {"0#", "12/a b", "1"}, {"01", "-1"}}};
  for (const auto& [format, good, bad] : formats) {
    nlohmann::json values = nlohmann::json::array();
    for (const Strings* all : {&good, &bad})
      for (const std::string& one : *all) values.push_back(one);
    const auto grammar = compile(
        Kind::kJsonSchema, concat(R"({"enum":)", values.dump(), R"(,"format":")", format, "\"}"));
    for (const auto& one : good) EXPECT_TRUE(takes(*grammar, nlohmann::json(one).dump())) << one;
    for (const auto& one : bad) EXPECT_FALSE(takes(*grammar, nlohmann::json(one).dump())) << one;
  }
  expect_schema(R"({"const":"::1","format":"ipv6"})", {R"("::1")"}, {});
}

// The values are found at any level, before schemas are merged.
TEST(SchemaValues, ListsWithinOtherSchemas) {
  expect_schema(R"({"allOf":[{"prefixItems":[{"type":"integer"}]},{"items":{"type":"integer"}},)"
                R"({"enum":[[1,2],["a"],[1,"a"]]}]})",
                {"[1,2]"}, {R"(["a"])", R"([1,"a"])"});
  expect_schema(R"({"allOf":[{"contains":{"const":1}},{"allOf":[{"contains":{"const":2}},)"
                R"({"$ref":"#/$defs/e"}]}],"$defs":{"e":{"enum":[[1],[2],[2,1]]}}})",
                {"[2,1]"}, {"[1]", "[2]"});
  expect_schema(R"({"$ref":"#/$defs/e","pattern":"^a","$defs":{"e":{"enum":["ab","b",1]}}})",
                {R"("ab")", "1"}, {R"("b")"});
  expect_schema(R"({"nullable":true,"allOf":[{"$ref":"#/$defs/e"}],"$defs":{"e":{"enum":["a"]}}})",
                {R"("a")", "null"}, {R"("b")"});
  EXPECT_EQ(refused(Kind::kJsonSchema, R"({"allOf":[{"enum":[1]},{"enum":[2]}]})"),
            "no text satisfies the constraint");
}

TEST(SchemaValues, ValuesBesideStringsThatAreOthers) {
  const std::string text = R"(,{"type":"string",)";
  expect_schema(R"({"oneOf":[{"const":"auto"})" + text + R"("maxLength":3}]})",
                {R"("auto")", R"("abc")"}, {R"("abcd")"});
  expect_schema(R"({"oneOf":[{"enum":["auto","none"]})" + text + R"("pattern":"^[0-9]+px$"}]})",
                {R"("auto")", R"("12px")"}, {R"("px")"});
  for (const char* more : {R"("maxLength":4}]})", R"("pattern":"^a"}]})", R"("format":"uuid"}]})"})
    EXPECT_NE(refused(Kind::kJsonSchema, R"({"oneOf":[{"const":"auto"})" + text + more)
                  .find("\"oneOf\" is not supported"),
              std::string::npos)
        << more;
}

// null is a value of combined schemas if each of them allows it.
TEST(SchemaValues, NullableOnesThatHoldTogether) {
  expect_schema(R"({"allOf":[{"type":"string","nullable":true},{"maxLength":2}]})",
                {R"("ab")", "null"}, {R"("abc")"});
  expect_schema(R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{)"
                R"("a":{"type":"string","nullable":true},)"
                R"("b":{"type":["string","null"],"minLength":1}}})",
                {R"("a")", "null"}, {R"("")"});
  expect_schema(R"({"allOf":[{"type":"string","nullable":true},{"type":"string"}]})", {R"("a")"},
                {"null"});
  expect_schema(R"({"allOf":[{"type":"object","nullable":true,"properties":{"a":{"const":1}}},)"
                R"({"required":["a"]}]})",
                {R"({"a":1})", "null"}, {"{}"});
  // With a list it extends the type only.
  expect_schema(R"({"type":"string","nullable":true,"enum":["a",null],"anyOf":[{"maxLength":2}]})",
                {R"("a")", "null"}, {});
  expect_schema(R"({"nullable":true,"enum":["a",null],"anyOf":[{"type":"string"}]})", {R"("a")"},
                {"null"});
  expect_schema(
      R"({"allOf":[{"type":"string","nullable":true,"enum":["a",null]},{"maxLength":9}]})",
      {R"("a")", "null"}, {});
  expect_schema(R"({"description":"d","maximum":9,"anyOf":[{"type":"integer","nullable":true}]})",
                {"7", "null"}, {"10"});
  EXPECT_NE(
      refused(Kind::kJsonSchema,
              R"({"maxLength":9,"oneOf":[{"type":"string","nullable":true},{"type":"null"}]})")
          .find("\"oneOf\" is not supported"),
      std::string::npos);
}

TEST(SchemaValues, SeveralAlternativesThatHoldTogether) {
  expect_schema(R"({"allOf":[{"$ref":"#/$defs/a"},{"allOf":[{"maximum":9},{"multipleOf":2}]}],)"
                R"("$defs":{"a":{"allOf":[{"type":"integer"},{"minimum":5}]}}})",
                {"6", "8"}, {"7", "4", "10"});
  expect_schema(R"({"allOf":[{"anyOf":[{"type":"string"},{"type":"integer"}]},)"
                R"({"anyOf":[{"type":["integer","null"]},{"maxLength":2,"type":"string"}]}]})",
                {"7", R"("ab")"}, {"null", R"("abc")"});
  expect_schema(R"({"$ref":"#/$defs/a","oneOf":[{"maximum":5},{"minimum":6}],)"
                R"("$defs":{"a":{"type":"integer","oneOf":[{"multipleOf":2},{"const":7}]}}})",
                {"4", "7", "8"}, {"5", "9"});
  expect_schema(R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3},)"
                R"("d":{"const":4}},"allOf":[{"anyOf":[{"required":["a"]},{"required":["b"]}]},)"
                R"({"anyOf":[{"required":["c"]},{"required":["d"]}]}]})",
                {R"({"a":1,"c":3})", R"({"a":1,"b":2,"d":4})"}, {R"({"a":1,"b":2})", R"({"d":4})"});
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
