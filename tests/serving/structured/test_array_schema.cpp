// Arrays with constraints across elements: every short array of a few values is compared with the
// test's own validation.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_array_schema {
namespace {

using namespace test;

using Elements = std::vector<std::string>;

std::string array_of(const Elements& elements) {
  std::string text;
  for (const std::string& one : elements) text += concat(text.empty() ? "" : ", ", one);
  return "[" + text + "]";
}

// All arrays of up to max_size of these values.
void expect_arrays(const std::string& schema, const Elements& values, size_t max_size,
                   const std::function<bool(const Elements&)>& is_valid) {
  const auto grammar = compile(Kind::kJsonSchema, schema);
  std::vector<Elements> arrays = {{}};
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Elements before = arrays[i];
    EXPECT_EQ(takes(*grammar, array_of(before)), is_valid(before))
        << array_of(before) << " " << schema;
    if (before.size() == max_size) continue;
    for (const std::string& value : values) {
      arrays.push_back(before);
      arrays.back().push_back(value);
    }
  }
}

bool is_unique(const Elements& all) {
  return std::set(all.begin(), all.end()).size() == all.size();
}

TEST(SchemaArrays, UniqueElementsOfKnownValues) {
  const Elements letters = {R"("a")", R"("b")", R"("c")", "null"};
  expect_arrays(R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})", letters, 4,
                [&](const Elements& all) {
                  return is_unique(all) && std::ranges::find(all, "null") == all.end();
                });
  expect_arrays(R"({"items":{"$ref":"#/$defs/k"},"uniqueItems":true,"minItems":1,"maxItems":2,)"
                R"("$defs":{"k":{"type":["string","null"],"enum":["a","b","c",null]}}})",
                letters, 3, [&](const Elements& all) {
                  return is_unique(all) && !all.empty() && all.size() <= 2;
                });
  expect_arrays(R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})",
                {"true", "false"}, 3, is_unique);
  expect_arrays(R"({"type":"array","items":{"type":"integer","minimum":1,"exclusiveMaximum":4},)"
                R"("uniqueItems":true})",
                {"1", "2", "3", "4"}, 3, [&](const Elements& all) {
                  return is_unique(all) && std::ranges::find(all, "4") == all.end();
                });
  expect_arrays(R"({"items":{"anyOf":[{"const":"a"},{"enum":["b","a"]},{"type":"null"}]},)"
                R"("uniqueItems":true})",
                {R"("a")", R"("b")", "null"}, 4, is_unique);
  // Members of objects are unordered, and 1.0 equals 1.
  expect_schema(
      R"({"items":{"enum":[{"x":1,"y":2},{"y":2,"x":1},1,1.0]},"uniqueItems":true})",
      {R"([{"x":1,"y":2},1])"},
      {R"([{"x":1,"y":2},{"y":2,"x":1}])", "[1,1.0]", R"([{"x":1,"y":2},{"x":1,"y":2}])"});
}

TEST(SchemaArrays, UniqueElementsOfPlaces) {
  expect_arrays(R"({"prefixItems":[{"enum":["a","b"]},{"enum":["b","c"]}],)"
                R"("items":{"enum":["a","c"]},"uniqueItems":true})",
                {R"("a")", R"("b")", R"("c")"}, 4, [&](const Elements& all) {
                  return is_unique(all) && (all.empty() || all[0] != R"("c")") &&
                         (all.size() < 2 || all[1] != R"("a")") &&
                         (all.size() < 3 || all[2] != R"("b")");
                });
  // Schemas that exclude each other need no counting.
  expect_schema(R"({"prefixItems":[{"type":"string"},{"type":"integer"}],"items":false,)"
                R"("uniqueItems":true})",
                {R"(["x",1])", "[]"}, {R"(["x","y"])"});
  expect_schema(R"({"items":{"type":"string"},"maxItems":1,"uniqueItems":true})", {R"(["x"])"},
                {R"(["x","y"])"});
  expect_schema(R"({"allOf":[{"items":{"type":"string"},"uniqueItems":true},{"maxItems":1}]})",
                {R"(["x"])"}, {R"(["x","y"])"});
}

TEST(SchemaArrays, UniqueElementsAreRefusedWhereTheyAreNotKnown) {
  const auto why = [](const std::string& schema) { return refused(Kind::kJsonSchema, schema); };
  for (const char* items :
       {R"({"type":"string"})", "true", R"({"type":"integer"})", R"({"type":["boolean","number"]})",
        R"({"type":"integer","minimum":0})"})
    EXPECT_NE(why(concat(R"({"properties":{"a":{"type":"array","uniqueItems":true,"items":)", items,
                         "}}}"))
                  .find("schema #/properties/a: \"uniqueItems\" is not supported"),
              std::string::npos)
        << items;
  std::string values;
  for (int i = 0; i < 30; ++i) values += concat(i == 0 ? "" : ",", "\"value", i, "\"");
  const std::string many =
      concat(R"({"type":"array","uniqueItems":true,"items":{"enum":[)", values, "]}");
  EXPECT_NE(why(many + "}").find("schema #: \"uniqueItems\" is not supported with 30 values"),
            std::string::npos);
  expect_schema(many + R"(,"maxItems":3})", {R"(["value3","value29","value0"])"},
                {R"(["value3","value3"])", R"(["value1","value2","value3","value4"])"});
  EXPECT_EQ(why(R"({"uniqueItems":1})"), "schema #: \"uniqueItems\" must be true or false");
  EXPECT_EQ(why(R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":3})"),
            "no text satisfies the constraint");
}

// Ten values in any order, each at most once.
TEST(SchemaArrays, ManyUniqueElements) {
  std::string values;
  for (int i = 0; i < 10; ++i)
    values += concat(i == 0 ? "" : ",", "\"a long value with number ", i, "\"");
  const std::string schema = concat(R"({"type":"array","items":{"enum":[)", values,
                                    R"(]},"uniqueItems":true,"minItems":1})");
  const auto grammar = compile(Kind::kJsonSchema, schema);
  EXPECT_LT(grammar->automaton().states().size(), 12'000u);
  EXPECT_LT(grammar->bytes(), 16 << 20);
  std::string all;
  for (const int i : {7, 3, 9, 0, 1, 2, 4, 5, 6, 8}) {
    all += concat(all.empty() ? "" : ",", "\"a long value with number ", i, "\"");
    EXPECT_TRUE(takes(*grammar, "[" + all + "]")) << all;
  }
  EXPECT_FALSE(takes(*grammar, "[" + all + ",\"a long value with number 4\"]"));
}

TEST(SchemaArrays, ElementsThatMatch) {
  const Elements values = {"1", "2", R"("a")"};
  const auto count = [](const Elements& all, const std::string& value) {
    return std::ranges::count(all, value);
  };
  expect_arrays(R"({"type":"array","contains":{"const":2}})", values, 4,
                [&](const Elements& all) { return count(all, "2") >= 1; });
  for (int least = 0; least <= 2; ++least)
    for (int most = 1; most <= 3; ++most) {
      const auto is_counted = [&](const Elements& all) {
        return least <= count(all, "2") && count(all, "2") <= most;
      };
      const std::string bounds = concat(R"("minContains":)", least, R"(,"maxContains":)", most);
      if (least <= most)
        expect_arrays(concat(R"({"items":{"enum":[1,2,"a"]},"contains":{"const":2},)", bounds, "}"),
                      values, 4, is_counted);
      if (least <= most)
        expect_arrays(concat(R"({"items":{"enum":[1,2,"a"]},"contains":{"const":2},"minItems":2,)",
                             R"("maxItems":3,)", bounds, "}"),
                      values, 4, [&](const Elements& all) {
                        return is_counted(all) && 2 <= all.size() && all.size() <= 3;
                      });
    }
  expect_arrays(R"({"items":{"enum":[1,2,"a"]},"contains":{"type":"integer"},"minContains":2,)"
                R"("uniqueItems":true})",
                values, 4, [&](const Elements& all) {
                  return is_unique(all) && count(all, "1") == 1 && count(all, "2") == 1;
                });
  expect_arrays(R"({"prefixItems":[{"enum":[1,2]}],"items":{"enum":[2,"a"]},"contains":)"
                R"({"const":2},"maxContains":1})",
                values, 3, [&](const Elements& all) {
                  return count(all, "2") == 1 && all[0] != R"("a")" &&
                         std::find(all.begin() + 1, all.end(), "1") == all.end();
                });
  // All elements match, or none.
  expect_arrays(R"({"items":{"enum":[1,2,"a"]},"contains":true,"minContains":2,"maxContains":3})",
                values, 4, [&](const Elements& all) { return 2 <= all.size() && all.size() <= 3; });
  EXPECT_EQ(refused(Kind::kJsonSchema,
                    R"({"items":{"type":"string"},"contains":{"type":"integer"},"maxContains":2})"),
            "no text satisfies the constraint");
  expect_schema(R"({"items":{"type":"string"},"contains":{"type":"null"},"minContains":0,)"
                R"("maxContains":2})",
                {"[]", R"(["a"])"}, {"[null]"});
}

TEST(SchemaArrays, ElementsOfManyValuesThatMatch) {
  expect_schema(R"({"type":"array","items":{"type":"string"},"contains":{"pattern":"^x-"}})",
                {R"(["x-a"])", R"(["a","x-b","c"])"}, {"[]", R"(["a"])", R"([1,"x-a"])"});
  expect_schema(R"({"type":"array","items":{"type":"object","properties":{"k":{"type":"string"},)"
                R"("v":{"type":"integer"}},"required":["k"]},"contains":{"properties":{"k":)"
                R"({"const":"id"}}},"minContains":2,"maxItems":3})",
                {R"([{"k":"id"},{"k":"id","v":1}])", R"([{"k":"id"},{"k":"a"},{"k":"id"}])"},
                {R"([{"k":"id"}])", R"([{"k":"id"},{"k":"a"}])",
                 R"([{"k":"id"},{"k":"id"},{"k":"a"},{"k":"a"}])"});
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_NE(why(R"({"items":{"type":"string"},"contains":{"pattern":"^x"},"maxContains":1})")
                .find("schema #: \"maxContains\" is not supported unless"),
            std::string::npos);
  EXPECT_NE(why(R"({"contains":{"const":1},"minContains":100,"maxItems":100})")
                .find("schema #: \"contains\" is not supported with"),
            std::string::npos);
  EXPECT_NE(why(R"({"allOf":[{"contains":{"const":1}},{"contains":{"const":2}}]})")
                .find("\"contains\" is not supported with different values"),
            std::string::npos);
  // The default of minContains is 1, also next to another schema's 0.
  expect_schema(R"({"allOf":[{"contains":{"const":1},"minContains":0,"maxContains":2},)"
                R"({"contains":{"const":1}}],"items":{"enum":[1,2]}})",
                {"[1]", "[2,1,1]"}, {"[]", "[2]", "[1,1,1]"});
}

TEST(SchemaArrays, GivenArraysAreChecked) {
  expect_schema(R"({"enum":[[1,2],[1,1],[1,1.0],[{"a":1,"b":2},{"b":2,"a":1}],[2,3]],)"
                R"("uniqueItems":true,"contains":{"const":1},"maxContains":1,"minContains":0})",
                {"[1,2]", "[2,3]"}, {"[1,1]", "[1,1.0]", R"([{"a":1,"b":2},{"b":2,"a":1}])"});
  expect_schema(R"({"enum":[[1,2],[2,3]],"contains":{"const":1}})", {"[1,2]"}, {"[2,3]"});
}

}  // namespace
}  // namespace trireme::test_array_schema
