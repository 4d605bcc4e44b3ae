// Schemas, regular expressions and grammars: accepted texts, and refusals with their reasons.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/core/error.h"
#include "serving/structured/json_schema_grammar.h"
#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_json_schema_grammar {
namespace {

using namespace test;

TEST(JsonSchema, Objects) {
  expect_schema(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"},"c":{}},)"
      R"("required":["b"]})",
      {R"({"b":true})", R"({"a":1,"b":false})", R"({"a": -7, "b": true, "c": [1,{"x":null}]})",
       "{\n  \"b\": true\n}"},
      {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":1})", R"({"b":true,"d":1})",
       R"({"b":true,})", R"({,"b":true})", R"({"b":true}})"});
  expect_schema(R"({"type":"object","properties":{"ab":{"type":"null"}},)"
                R"("additionalProperties":{"type":"integer"}})",
                {"{}", R"({"ab":null})", R"({"a":1})", R"({"ab":null,"abc":2,"é":3})"},
                {R"({"ab":1})", R"({"abc":null})", R"({"a":1,"ab":2})", R"({"a\u0062":1})"});
  expect_schema(R"({"required":["x"]})", {R"({"x":[]})"}, {"{}", "3"});
}

TEST(JsonSchema, Arrays) {
  expect_schema(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
                {"[1]", "[1,2,3]", "[ 1, 2 ]"}, {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"});
  expect_schema(R"({"prefixItems":[{"const":1},{"const":2}],"items":{"const":3},"minItems":1})",
                {"[1]", "[1,2]", "[1,2,3,3]"}, {"[]", "[2]", "[1,3]", "[1,2,2]"});
  expect_schema(R"({"prefixItems":[{"const":1},{"const":2}],"items":false,"maxItems":1})",
                {"[]", "[1]"}, {"[1,2]"});
}

TEST(JsonSchema, Numbers) {
  expect_schema(R"({"type":"integer","minimum":-13,"maximum":207})",
                {"-13", "-9", "-1", "0", "7", "99", "199", "200", "207"},
                {"-14", "208", "1000", "-20", "00", "1.0", "-"});
  for (const int low : {-120, -100, -7, 0, 5, 89, 100})
    for (const int high : {-99, -8, 0, 6, 99, 101, 1234}) {
      if (low > high) continue;
      const auto grammar = compile(
          Kind::kJsonSchema,
          concat(R"({"type":"integer","exclusiveMinimum":)", low - 1, R"(,"maximum":)", high, "}"));
      for (int n = -130; n <= 1300; ++n)
        ASSERT_EQ(takes(*grammar, std::to_string(n)), low <= n && n <= high) << low << " " << high;
    }
  for (const double low : {-1.5, -0.25, 0.0, 0.125, 9.75})
    for (const double high : {-0.5, 0.0, 0.5, 0.625, 10.0, 12.5}) {
      if (low >= high) continue;
      const auto grammar = compile(Kind::kJsonSchema, concat(R"({"type":"number","minimum":)", low,
                                                             R"(,"exclusiveMaximum":)", high, "}"));
      for (int n = -2000; n <= 14000; n += 5) {
        const double x = n / 1000.0;
        ASSERT_EQ(takes(*grammar, text(x)), low <= x && x < high) << x << " " << low << " " << high;
      }
    }
  expect_schema(R"({"type":"number"})", {"1", "-0.5", "1e5", "2.5E-3"}, {"01", ".5", "1.", "+1"});
}

TEST(JsonSchema, Strings) {
  expect_schema(R"({"type":"string","minLength":2,"maxLength":3})",
                {R"("ab")", R"("é日")", R"("a\n\u00e9")", R"("\ud83d\ude00a")"},
                {R"("a")", R"("abcd")", R"("\ud83d")", R"("\ude00a")", "\"a\n\""});
  expect_schema(R"({"type":"string","pattern":"^a\"?\\\\$"})", {R"("a\\")", R"("a\"\\")"},
                {R"("a\")", R"("a")"});
  expect_schema(R"({"type":"string","pattern":"b.d"})", {R"("abcde")", R"("bxd")"}, {R"("bd")"});
  expect_schema(R"({"format":"date"})", {R"("2024-02-29")", R"("1999-12-31")"},
                {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("0000-01-01")"});
  expect_schema(R"({"type":["string","null"],"enum":["a","b\"",null,3]})",
                {R"("a")", R"("b\"")", "null"}, {"3", R"("b")"});
}

TEST(JsonSchema, CombinedOnes) {
  expect_schema(R"({"anyOf":[{"type":"integer"},{"type":"null"}],"maximum":9})", {"9", "null"},
                {"10"});
  expect_schema(R"({"allOf":[{"properties":{"a":{"type":"integer"}}},)"
                R"({"properties":{"a":{"maximum":5}},"required":["a"]}]})",
                {R"({"a":5})"}, {R"({"a":6})", "{}"});
  const std::string list =
      R"({"$ref":"#/$defs/list","$defs":{"list":{"anyOf":[{"type":"null"},)"
      R"({"type":"object","properties":{"next":{"$ref":"#/$defs/list"}},"required":["next"]}]}}})";
  expect_schema(list, {"null", R"({"next":{"next":null}})"}, {R"({"next":{}})", R"({"next":1})"});
}

// Exactly one of its schemas may match: they must exclude each other.
TEST(JsonSchema, OneOf) {
  const auto object = [](const char* kind, const char* more) {
    return concat(R"({"type":"object","properties":{"kind":{"const":")", kind, R"("})", more,
                  R"(},"required":["kind"]})");
  };
  const auto one_of = [](const std::vector<std::string>& schemas, const std::string& more = "") {
    std::string all;
    for (const std::string& schema : schemas) all += concat(all.empty() ? "" : ",", schema);
    return concat(R"({"oneOf":[)", all, "]", more, "}");
  };
  expect_schema(one_of({object("a", R"(,"x":{"type":"integer"})"), object("b", "")}),
                {R"({"kind":"a","x":1})", R"({"kind":"b"})"}, {R"({"kind":"c"})", "{}"});
  expect_schema(
      one_of({R"({"$ref":"#/$defs/a"})", R"({"$ref":"#/$defs/b"})"},
             concat(R"(,"$defs":{"a":)", object("a", ""), R"(,"b":)", object("b", ""), "}")),
      {R"({"kind":"a"})"}, {"{}"});
  expect_schema(one_of({R"({"type":"integer"})", R"({"type":["string","null"]})"}), {"1", "null"},
                {"true"});
  expect_schema(one_of({R"({"maximum":4})", R"({"exclusiveMinimum":4})"}, R"(,"type":"integer")"),
                {"4", "5"}, {"4.5"});
  expect_schema(one_of({R"({"maxLength":1})", R"({"minLength":2})"}, R"(,"type":"string")"),
                {R"("a")", R"("ab")"}, {"1"});
  expect_schema(one_of({R"({"type":"array","maxItems":1})", R"({"type":"array","minItems":2})"}),
                {"[]", "[1,2]"}, {"1"});
  expect_schema(one_of({R"({"enum":["a",1]})", R"({"enum":["b"]})", R"({"type":"null"})"}),
                {R"("a")", R"("b")", "null"}, {"2"});
  // No text of the first has what the second requires, and vice versa.
  expect_schema(one_of({R"({"properties":{"a":{}},"required":["a"],"type":"object"})",
                        R"({"properties":{"b":{}},"required":["b"],"type":"object"})"}),
                {R"({"a":1})", R"({"b":1})"}, {R"({"a":1,"b":1})"});
  for (const std::string& both :
       {one_of({R"({"type":"integer"})", R"({"type":"number"})"}),
        one_of({R"({"maximum":4})", R"({"minimum":4})"}, R"(,"type":"integer")"),
        one_of({R"({"type":"string"})", R"({"enum":["a"]})"}),
        one_of({R"({"type":"string"})", R"({"properties":{"a":{}},"required":["a"]})"}),
        one_of({R"({"type":"string","pattern":"^a"})", R"({"type":"string","pattern":"^b"})"}),
        one_of({R"({"required":["a"]})", R"({"required":["b"]})"},
               R"(,"properties":{"a":{},"b":{}},"type":"object")"),
        one_of({R"({"type":"string","nullable":true})", R"({"type":"null"})"}),
        one_of({object("a", ""), R"({"type":"object"})"}), one_of({"true", R"({"type":"null"})"}),
        one_of({object("a", ""), R"({"$ref":"#"})"})}) {
    const std::string why = refused(Kind::kJsonSchema, both);
    EXPECT_NE(why.find("\"oneOf\" is not supported"), std::string::npos) << both << ": " << why;
    EXPECT_NE(why.find("anyOf"), std::string::npos) << why;
  }
}

// Refused where one of several combined schemas is refused.
TEST(JsonSchema, CombinedOnesHoldTogether) {
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_NE(why(R"({"allOf":[{"prefixItems":[{"type":"string"}]},{"items":{"type":"integer"}}]})")
                .find("prefixItems"),
            std::string::npos);
  expect_schema(R"({"allOf":[{"prefixItems":[{"const":1}],"items":{"const":2}},{"minItems":2}]})",
                {"[1,2]"}, {"[1]", "[2,2]"});
  expect_schema(R"({"allOf":[{"type":"string","nullable":true},{"type":"string"}]})", {R"("a")"},
                {"null"});
  expect_schema(R"({"nullable":true,"allOf":[{"type":"string"}]})", {R"("a")", "null"}, {});
  expect_schema(R"({"type":"string","nullable":true,"enum":["a"]})", {R"("a")"}, {"null"});
  expect_schema(R"({"type":"string","nullable":true,"enum":["a",null]})", {R"("a")", "null"}, {});
}

TEST(JsonSchema, BoundsThatNoNumberReachesAreRefused) {
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_NE(why(R"({"type":"number","minimum":1e20})").find("leaves no"), std::string::npos);
  EXPECT_NE(why(R"({"type":"number","maximum":-1e20})").find("leaves no"), std::string::npos);
  EXPECT_NE(why(R"({"type":"integer","minimum":1e20})").find("leaves no"), std::string::npos);
  expect_schema(R"({"type":"number","minimum":-1e20,"maximum":1e20})", {"-7", "0.5"}, {});
}

TEST(JsonSchema, WhatIsNotSupportedIsNamedWithItsPath) {
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_EQ(why(R"({"properties":{"a":{"items":{"not":{}}}}})"),
            "schema #/properties/a/items: \"not\" is not supported");
  EXPECT_EQ(why(R"({"if":{"type":"null"},"then":false})"), "schema #: \"if\" is not supported");
  EXPECT_NE(why(R"_({"type":"string","pattern":"(?=a)"})_").find("lookaround"), std::string::npos);
  EXPECT_NE(why(R"({"$ref":"http://a/b"})").find("not within the schema"), std::string::npos);
  EXPECT_NE(why(R"({"$ref":"#/$defs/x"})").find("refers to nothing"), std::string::npos);
  EXPECT_NE(why(R"({"type":"text"})").find("type"), std::string::npos);
  EXPECT_EQ(why(R"({"$ref":"#"})"), "no text satisfies the constraint");
  EXPECT_NE(why(R"({"type":"integer","minimum":2,"maximum":1})").find("no integer"),
            std::string::npos);
  EXPECT_NE(why("{").find("schema"), std::string::npos);
  EXPECT_EQ(why(R"({"$ref":"#/$defs/a","allOf":5,"$defs":{"a":{"allOf":[true]}}})"),
            "schema #: \"allOf\" must be a non-empty array");
  EXPECT_EQ(why(R"({"type":"string","anyOf":[{"type":["x",1]}]})"),
            "no text satisfies the constraint");
}

std::string with(const std::string& schema, const std::string& more) {
  return concat(schema.substr(0, schema.size() - 1), schema == "{}" ? "" : ",", more, "}");
}

TEST(JsonSchema, AnnotationsAreNoConstraints) {
  const std::string object = R"({"type":"object","properties":{"a":{"type":"boolean"}},)"
                             R"("required":["a"]})";
  for (const char* more :
       {R"("contentMediaType":"text/plain","contentEncoding":"base64","contentSchema":{"not":{}})",
        R"("externalDocs":{"url":"u"},"xml":{"name":"n"},"x-any":[1],"$comment":"c")",
        R"("$anchor":"z","$dynamicAnchor":"y","$vocabulary":{},"deprecated":true)",
        R"("readOnly":true,"writeOnly":true,"examples":[1],"discriminator":{"propertyName":"a"})",
        R"("format":"of-another-kind","title":"t","errorMessage":"e","propertyOrdering":["a"])",
        R"("unevaluatedProperties":true,"propertyNames":{},"dependentRequired":{})",
        R"("unevaluatedProperties":{"description":"d"},"propertyNames":{"type":"string"})",
        R"("dependentRequired":{"b":["a"]},"dependentSchemas":{},"patternProperties":{})",
        R"("not":false,"if":{"required":["b"]},"minContains":2,"uniqueItems":false)",
        R"("then":{"required":["b"]},"else":false,"exclusiveMinimum":false,"minProperties":0)"})
    expect_schema(with(object, more), {R"({"a":true})"}, {"{}", R"({"a":1})", "1"});
  expect_schema(R"({"type":"string","format":"stardate","minLength":1})", {R"("x")"}, {R"("")"});
  expect_schema(R"({"type":"integer","format":"int32"})", {"7"}, {R"("7")"});
  expect_schema(R"({"format":"int32"})", {"7", R"("x")", "[]"}, {});
  // The same keywords with other values are constraints, which are not ignored.
  for (const char* more :
       {R"("if":true,"then":{"required":["b"]})", R"("not":{})", R"("unknown":1)",
        R"("anyOf":[true],"unevaluatedProperties":false)", R"("$dynamicRef":"#z")"})
    EXPECT_NE(refused(Kind::kJsonSchema, with(object, more)).find("is not supported"),
              std::string::npos)
        << more;
}

TEST(JsonSchema, EarlierSpellings) {
  expect_schema(R"({"type":"array","items":[{"const":1},{"const":2}],"additionalItems":false})",
                {"[]", "[1,2]"}, {"[2]", "[1,2,3]"});
  expect_schema(R"({"items":[{"const":1}],"additionalItems":{"const":3}})", {"[1,3,3]"}, {"[1,2]"});
  expect_schema(R"({"prefixItems":[{"const":1}],"unevaluatedItems":false})", {"[1]"}, {"[1,2]"});
  expect_schema(R"({"type":"integer","minimum":3,"exclusiveMinimum":true})", {"4"}, {"3"});
  expect_schema(R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"a":1})"});
  expect_schema(R"({"unevaluatedProperties":false,"additionalProperties":{"const":1}})",
                {R"({"a":1})"}, {R"({"a":2})"});
}

TEST(JsonSchema, StringsOfSeveralConstraints) {
  expect_schema(R"({"type":"string","pattern":"^a+$","minLength":0})", {R"("a")"}, {R"("")"});
  expect_schema(R"({"type":"string","pattern":"^a+$","minLength":2,"maxLength":3})",
                {R"("aa")", R"("aaa")"}, {R"("a")", R"("aaaa")"});
  // Lengths count characters, however many bytes they take.
  expect_schema(R"({"type":"string","pattern":"^(日|\n)*$","minLength":2})",
                {R"("日日")", R"("\n日")", R"("\n\n")"}, {R"("日")", R"("\n")"});
  expect_schema(R"({"type":"string","pattern":"b","maxLength":4})", {R"("abcd")", R"("b")"},
                {R"("aaaa")", R"("abcde")"});
  expect_schema(R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"}],"type":"string"})",
                {R"("ab")", R"("axxb")"}, {R"("a")", R"("ba")"});
  expect_schema(R"({"type":"string","format":"date","pattern":"^2024","minLength":10})",
                {R"("2024-02-29")"}, {R"("2023-01-01")"});
  expect_schema(R"({"type":"string","format":"uri","minLength":1,"maxLength":12})",
                {R"("http://a")", R"("http://ab.cd")"}, {R"("http://ab.cde")", R"("a")"});
  expect_schema(R"({"format":"uri","minLength":1,"maxLength":2083})", {R"("https://a.b/c?d=e")"},
                {R"("https://")"});
  EXPECT_EQ(refused(Kind::kJsonSchema, R"({"type":"string","format":"date","maxLength":9})"),
            "no text satisfies the constraint");
  EXPECT_NE(refused(Kind::kJsonSchema,
                    R"({"properties":{"a":{"type":"string","pattern":"a","minLength":9999}}})")
                .find("schema #/properties/a: \"minLength\" is larger than 1024"),
            std::string::npos);
}

TEST(JsonSchema, StringsOfEqualConstraintsShareStates) {
  std::string properties;
  for (int i = 0; i < 200; ++i)
    properties += concat(i == 0 ? "" : ",", R"("p)", i, R"(":{"type":"string","format":"uri"})");
  expect_schema(concat(R"({"properties":{)", properties, "}}"),
                {R"({"p0":"http://a","p199":"http://b.c/d"})"}, {R"({"p0":"-"})"});
}

TEST(JsonSchema, EnumsAreWhatTheRestLeavesOfThem) {
  expect_schema(R"({"type":"string","enum":["a","b"],"maxLength":5})", {R"("a")", R"("b")"}, {});
  expect_schema(R"({"enum":["a","bb","日本"],"maxLength":1})", {R"("a")"}, {R"("bb")"});
  expect_schema(R"({"enum":["a","bb","日本","\n\n"],"minLength":2})",
                {R"("bb")", R"("日本")", R"("\n\n")"}, {R"("a")"});
  expect_schema(R"({"enum":[1,5,9.5,"x"],"minimum":2,"exclusiveMaximum":9.5})", {"5", R"("x")"},
                {"1", "9.5"});
  expect_schema(R"({"enum":[1,4,6],"multipleOf":2})", {"4", "6"}, {"1"});
  expect_schema(R"({"enum":["2024-01-01","no"],"format":"date"})", {R"("2024-01-01")"},
                {R"("no")"});
  expect_schema(R"({"enum":["a\"b","b"],"pattern":"^a"})", {R"("a\"b")"}, {R"("b")"});
  expect_schema(R"({"enum":[[1],[1,2],["a"]],"items":{"type":"integer"},"minItems":2})", {"[1,2]"},
                {"[1]", R"(["a"])"});
  expect_schema(R"({"enum":[{"a":1},{"b":1},{"a":"x"}],"required":["a"],"properties":{"a":)"
                R"({"$ref":"#/$defs/n"}},"$defs":{"n":{"oneOf":[{"type":"integer"}]}}})",
                {R"({"a":1})"}, {R"({"b":1})", R"({"a":"x"})"});
  expect_schema(R"({"const":7,"anyOf":[{"minimum":9},{"maximum":8}]})", {"7"}, {});
  EXPECT_EQ(refused(Kind::kJsonSchema, R"({"const":"abc","maxLength":2})"),
            "no text satisfies the constraint");
}

TEST(JsonSchema, NumbersOfProperties) {
  const std::string dict = R"({"type":"object","additionalProperties":{"const":1}})";
  expect_schema(with(dict, R"("minProperties":1,"maxProperties":2)"),
                {R"({"a":1})", R"({"a":1,"b":1})"}, {"{}", R"({"a":1,"b":1,"c":1})"});
  expect_schema(with(dict, R"("maxProperties":0)"), {"{}"}, {R"({"a":1})"});
  expect_schema(R"({"properties":{"a":{"const":1},"b":{"const":1}},"minProperties":1})",
                {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}"});
  expect_schema(R"({"properties":{"a":{"const":1}},"maxProperties":2,)"
                R"("additionalProperties":{"const":2}})",
                {"{}", R"({"b":2})", R"({"a":1,"b":2})"}, {R"({"a":1,"b":2,"c":2})"});
}

TEST(JsonSchema, LargeCountsTakeFewStates) {
  const auto string = [](int64_t least, int64_t most) {
    return concat(R"({"type":"string","minLength":)", least, R"(,"maxLength":)", most, "}");
  };
  std::string ten = R"({"type":"object","properties":{)";
  for (int i = 0; i < 10; ++i) ten += concat(i == 0 ? "" : ",", "\"p", i, "\":", string(0, 5000));
  for (const std::string& schema :
       {string(1, 65536), string(20'000, 1LL << 40), ten + "}}",
        std::string(R"({"type":"array","items":{"type":"integer"},"maxItems":100000})"),
        std::string(R"({"type":"array","items":{"type":"string"},"minItems":5000})")})
    EXPECT_LT(compile(Kind::kJsonSchema, schema)->automaton().states().size(), 2500u) << schema;
  const auto text = [](size_t length) { return concat("\"", std::string(length, 'x'), "\""); };
  for (const auto& [least, most] :
       {std::pair{0, 64}, {0, 300}, {3, 200}, {200, 1000}, {130, 130}}) {
    const auto grammar = compile(Kind::kJsonSchema, string(least, most));
    for (const int length : {0, 1, 2, 3, 63, 64, 65, 129, 130, 131, 199, 200, 201, 300, 301, 1000})
      EXPECT_EQ(takes(*grammar, text(static_cast<size_t>(length))),
                least <= length && length <= most)
          << least << " " << most << " " << length;
    std::string escaped = "\"";  // characters of several bytes are counted once
    for (int i = 0; i < most; ++i) escaped += i % 3 == 0 ? "\\n" : i % 3 == 1 ? "日" : "\\u00e9";
    EXPECT_TRUE(takes(*grammar, escaped + "\"")) << most;
    EXPECT_FALSE(takes(*grammar, escaped + "x\"")) << most;
  }
  const auto array = compile(
      Kind::kJsonSchema, R"({"items":{"const":1},"minItems":70,"maxItems":300,"type":"array"})");
  const auto ones = [](int count) {
    std::string all = "[";
    for (int i = 0; i < count; ++i) all += i == 0 ? "1" : ", 1";
    return all + "]";
  };
  for (const int count : {0, 69, 70, 71, 299, 300, 301})
    EXPECT_EQ(takes(*array, ones(count)), 70 <= count && count <= 300) << count;
}

TEST(JsonSchema, CountsThatAreTooLargeAreNamed) {
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_EQ(why(R"({"properties":{"x":{"type":"string","minLength":100001}}})"),
            "schema #/properties/x: \"minLength\" is larger than 100000");
  EXPECT_EQ(why(R"({"items":{"type":"string","pattern":"^(a|b)*a(a|b){9}$","minLength":99}})"),
            "the constraint's automaton has more than 30000 states: make it simpler, beginning "
            "with schema "
            "#/items: \"minLength\"");
}

// Whatever tokens are sampled, counted parts stay within their bounds and come to an end.
TEST(JsonSchema, CountedTextsEndWithinTheirTokens) {
  const auto trie = trie_of(byte_tokens({"xxxxxxxx", "\",", "\"]", "]", "日日", "\\u00", "xx\""}));
  const auto grammar = CompiledGrammar::compile(
      {Kind::kJsonSchema,
       R"({"type":"array","items":{"type":"string","maxLength":70},"maxItems":80})"},
      trie);
  std::mt19937 random(3);
  for (int n = 0; n < 60; ++n) {
    const int64_t most = 2 + static_cast<int64_t>(random() % 1500);
    const auto reader = grammar->begin({kEnd}, most);
    std::string text;
    bool goes_on = true;
    for (int64_t i = 0; i < most && goes_on; ++i) {
      const std::vector<int32_t> ids = allowed(reader->mask(), trie->ids());
      ASSERT_FALSE(ids.empty()) << text;
      int32_t id = ids[random() % ids.size()];
      if (allows(reader->mask(), 257) && random() % 2 == 0) id = 257;
      if (id == kEnd) break;
      text += trie->bytes(id);
      goes_on = reader->accept(id);
    }
    ASSERT_TRUE(reader->is_whole()) << text;
    const nlohmann::json value = nlohmann::json::parse(text);
    EXPECT_LE(value.size(), 80u);
    for (const std::string one : value) {
      const auto is_first = [](char c) { return (c & 0xC0) != 0x80; };
      EXPECT_LE(std::ranges::count_if(one, is_first), 70) << one;
    }
  }
}

// Seconds that this thread has computed: other processes do not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Sources designed to take long are compiled or refused quickly.
TEST(Hostile, SourcesAreCompiledOrRefusedInTime) {
  std::string oneof = R"({"type":"integer"})", values;
  for (int i = 0; i < 40; ++i)
    oneof = concat(R"({"oneOf":[)", oneof, R"(,{"type":"null"}],"minimum":)", i, "}");
  std::string defs;
  for (int i = 0; i < 40; ++i)
    defs += concat(R"("a)", i, R"(":{"oneOf":[{"$ref":"#/$defs/a)", i + 1,
                   R"(","minimum":1},{"$ref":"#/$defs/a)", i + 1, R"(","maximum":9}]},)");
  for (int i = 0; i < 100'000; ++i) values += concat(i == 0 ? "" : ",", i * 7919);
  const std::vector<std::pair<Kind, std::string>> sources = {
      {Kind::kJsonSchema, oneof},
      {Kind::kJsonSchema,
       concat(R"({"$ref":"#/$defs/a0","$defs":{)", defs, R"("a40":{"type":"integer"}}})")},
      {Kind::kJsonSchema, concat(R"({"enum":[)", values, "]}")},
      {Kind::kJsonSchema, R"({"type":"string","maxLength":100000})"},
      {Kind::kJsonSchema,
       R"({"type":"array","items":{"type":"array","minItems":5000},"minItems":5000})"},
      {Kind::kJsonSchema, R"({"allOf":[{"$ref":"#"}],"type":"object"})"},
      {Kind::kRegex, "(((((a{1000}){1000}){1000}){1000}){1000})"},
      {Kind::kRegex, "(a|b)*a(a|b){40}"},
      {Kind::kRegex, std::string(60'000, '(')},
      {Kind::kRegex, concat("(", std::string(30'000, 'x'), "){0,9000}")},
      {Kind::kGrammar, "root ::= a a a a a a a a\na ::= b{9} b{9}\nb ::= [a-z]{0,999}"},
      {Kind::kGrammar, concat("root ::= ", std::string(60'000, '('))},
      {Kind::kRegex, concat("((", std::string(60'000, '|'), "){10000}){100}a")},
  };
  for (const auto& [kind, text] : sources) {
    const double begin = cpu_seconds();
    const std::string why = refused(kind, text);
    EXPECT_LT(cpu_seconds() - begin, 30) << text.substr(0, 60) << ": " << why;
  }
}

// Nested expressions are processed by recursive functions.
TEST(Hostile, RepetitionsOfRepetitionsAreNesting) {
  for (const char repeated : {'*', '+', '?'})
    EXPECT_NE(refused(Kind::kGrammar, concat("root ::= \"a\"", std::string(60'000, repeated)))
                  .find("nested deeper"),
              std::string::npos);
  expect(Kind::kGrammar, "root ::= (\"a\"?)+*", {"", "aa"}, {"b"});
}

// `depth` levels of nesting: the outermost schema, and the text of a rule, are the first level.
std::string nested(Kind kind, int depth) {
  const auto times = [](int count, std::string_view text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  if (kind == Kind::kJsonSchema)
    return concat(times(depth, R"({"type":"array","items":)"), "true", times(depth, "}"));
  const std::string groups = concat(times(depth, "("), "\"a\"", times(depth, ")"));
  return kind == Kind::kRegex ? groups : concat("root ::= ", groups);
}

TEST(Hostile, NestingIsBoundedAtItsDepth) {
  EXPECT_EQ(GrammarLimits{}.depth, 64);
  for (const auto& [kind, most] :
       {std::pair{Kind::kJsonSchema, 64}, {Kind::kRegex, 64}, {Kind::kGrammar, 63}}) {
    EXPECT_EQ(refused(kind, nested(kind, most)), "nothing");
    EXPECT_EQ(refused(kind, nested(kind, most + 1)), "the constraint is nested deeper than 64");
  }
}

TEST(Hostile, AutomataAreBoundedAtTheirStates) {
  // One state for each character, and one for the end.
  const auto refused_with = [](int64_t states, int characters) -> std::string {
    try {
      CompiledGrammar::compile({Kind::kRegex, concat("a{", characters, "}")},
                               trie_of(byte_tokens()), {.states = states});
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(GrammarLimits{}.states, 30'000);
  for (const int states : {100, 1000}) {
    EXPECT_EQ(refused_with(states, states - 1), "nothing");
    EXPECT_EQ(refused_with(states, states), concat("the constraint's automaton has more than ",
                                                   states, " states: make it simpler"));
  }
}

TEST(Hostile, LongTextsWithEqualEndsAreCompiled) {
  const std::string end(3000, 'x');
  const auto grammar =
      CompiledGrammar::compile({Kind::kChoice, "", {"A" + end, "B" + end}}, trie_of(byte_tokens()),
                               {.time = std::chrono::seconds(60)});
  EXPECT_LT(grammar->automaton().states().size(), 3010u);  // the final states are merged
  EXPECT_TRUE(takes(*grammar, "B" + end));
}

}  // namespace
}  // namespace trireme::test_json_schema_grammar
