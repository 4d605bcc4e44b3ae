// Objects with constraints across members: every set of members is compared with the test's own
// validation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_object_schema {
namespace {

using namespace test;

constexpr std::string_view kNames = "abcde";

// Members with these bits, in order, followed by others.
std::string object_of(unsigned bits, const std::vector<std::string>& others = {}) {
  std::string text;
  const auto add = [&](const std::string& name) {
    text += concat(text.empty() ? "" : ",", "\"", name, "\":1");
  };
  for (size_t i = 0; i < kNames.size(); ++i)
    if ((bits >> i & 1) != 0) add(std::string(1, kNames[i]));
  for (const std::string& name : others) add(name);
  return "{" + text + "}";
}

// A schema with the properties a to e, and other keywords.
std::string schema_of(const std::string& more) {
  return concat(
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1},"c":{"const":1},)",
      R"("d":{"const":1},"e":{"const":1}},)", more, "}");
}

void expect_sets(const std::string& schema, const std::function<bool(unsigned)>& is_valid) {
  const auto grammar = compile(Kind::kJsonSchema, schema);
  for (unsigned bits = 0; bits < 32; ++bits)
    EXPECT_EQ(takes(*grammar, object_of(bits)), is_valid(bits)) << object_of(bits) << " " << schema;
}

TEST(SchemaObjects, NumbersOfNamedMembers) {
  for (int least = 0; least <= 5; ++least)
    for (int most = std::max(least, 1); most <= 6; ++most)
      expect_sets(schema_of(concat(R"("required":["b"],"minProperties":)", least,
                                   R"(,"maxProperties":)", most)),
                  [&](unsigned bits) {
                    const int count = std::popcount(bits);
                    return (bits & 2) != 0 && least <= count && count <= most;
                  });
  for (int least = 1; least <= 5; ++least)
    expect_sets(schema_of(concat(R"("minProperties":)", least)),
                [&](unsigned bits) { return std::popcount(bits) >= least; });
  EXPECT_EQ(refused(Kind::kJsonSchema, schema_of(R"("minProperties":6)")),
            "no text satisfies the constraint");
}

TEST(SchemaObjects, NumbersOfNamedAndOtherMembers) {
  const std::vector<std::vector<std::string>> others = {
      {}, {"x"}, {"x", "y"}, {"x", "y", "z"}, {"p", "q", "r", "s"}};
  for (int least = 0; least <= 4; ++least)
    for (int most = std::max(least, 1); most <= 5; ++most) {
      const auto grammar =
          compile(Kind::kJsonSchema,
                  schema_of(concat(R"("additionalProperties":{"const":1},)", R"("minProperties":)",
                                   least, R"(,"maxProperties":)", most)));
      for (unsigned bits = 0; bits < 32; ++bits)
        for (const auto& names : others) {
          const int count = std::popcount(bits) + static_cast<int>(names.size());
          EXPECT_EQ(takes(*grammar, object_of(bits, names)), least <= count && count <= most)
              << object_of(bits, names) << " " << least << " " << most;
        }
    }
}

// A repeated name is one property: it must not count twice towards a minimum.
TEST(SchemaObjects, EqualNamesAreOneProperty) {
  const std::string dict = R"({"type":"object","additionalProperties":{"const":1},)";
  expect_schema(dict + R"("minProperties":2})",
                {R"({"a":1,"b":1})", R"({"item1":1,"item2":1})", R"({"x":1,"x":1,"y":1})"},
                {"{}", R"({"a":1})", R"({"a":1,"a":1})", R"({"a":1,"\u0061":1})"});
  expect_schema(
      dict + R"("minProperties":3,"maxProperties":4})",
      {R"({"a":1,"b":1,"c":1})", R"({"a":1,"a":1,"b":1,"c":1})"},
      {R"({"a":1,"b":1})", R"({"a":1,"a":1,"b":1})", R"({"a":1,"b":1,"c":1,"d":1,"e":1})"});
  expect_schema(dict + R"("minProperties":2,"propertyNames":{"pattern":"^[a-z]+$"}})",
                {R"({"a":1,"b":1})"}, {R"({"a":1})", R"({"a":1,"B":1})", R"({"a":1,"a":1})"});
  EXPECT_NE(refused(Kind::kJsonSchema, dict + R"("minProperties":5})")
                .find("schema #: \"minProperties\" is not supported with more than 4"),
            std::string::npos);
}

TEST(SchemaObjects, MembersThatRequireOthers) {
  const auto has = [](unsigned bits, char name) { return (bits >> (name - 'a') & 1) != 0; };
  // Later ones, earlier ones, both, and chains.
  expect_sets(schema_of(R"("dependentRequired":{"a":["c","e"],"d":["b"]})"), [&](unsigned bits) {
    return (!has(bits, 'a') || (has(bits, 'c') && has(bits, 'e'))) &&
           (!has(bits, 'd') || has(bits, 'b'));
  });
  expect_sets(schema_of(R"("dependencies":{"e":["a"],"a":["e"],"b":[]},"required":["c"])"),
              [&](unsigned bits) { return has(bits, 'a') == has(bits, 'e') && has(bits, 'c'); });
  expect_sets(schema_of(R"("dependentRequired":{"a":["b"],"b":["e"]},"maxProperties":3)"),
              [&](unsigned bits) {
                return (!has(bits, 'a') || has(bits, 'b')) && (!has(bits, 'b') || has(bits, 'e')) &&
                       std::popcount(bits) <= 3;
              });
  expect_sets(schema_of(R"("dependentSchemas":{"a":{"required":["d"]}},"allOf":[)"
                        R"({"dependentRequired":{"a":["e"]}}])"),
              [&](unsigned bits) { return !has(bits, 'a') || (has(bits, 'd') && has(bits, 'e')); });
  // A member required by another one has its own requirements.
  expect_schema(R"({"properties":{"a":{"const":1}},"dependentRequired":{"x":["y"],"a":["x"]}})",
                {"{}", R"({"a":1,"x":1,"y":1})", R"({"y":1})"}, {R"({"a":1,"x":1})", R"({"x":1})"});
  // Names without a schema.
  expect_schema(R"({"properties":{"a":{"const":1}},"dependentRequired":{"a":["z"],"y":["a"]}})",
                {"{}", R"({"a":1,"z":true})"}, {R"({"a":1})", R"({"y":1})"});
  expect_schema(R"({"properties":{"a":{"const":1}},"additionalProperties":{"const":2},)"
                R"("dependentRequired":{"y":["a"],"z":["x"]}})",
                {R"({"a":1,"y":2})", R"({"w":2})", R"({"z":2,"x":2})"},
                {R"({"y":2})", R"({"z":2})", R"({"w":2,"y":2})", R"({"w":2,"z":2})"});
  expect_schema(R"({"properties":{"a":{"const":1}},"additionalProperties":false,)"
                R"("dependentRequired":{"a":["z"]}})",
                {"{}"}, {R"({"a":1})", R"({"a":1,"z":1})"});
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_EQ(why(R"({"dependentSchemas":{"a":{"minProperties":2}}})"),
            "schema #: \"dependentSchemas\" is not supported");
  EXPECT_EQ(why(R"({"properties":{"x":{"dependencies":{"a":{"not":{}}}}}})"),
            "schema #/properties/x: \"dependencies\" is not supported");
  EXPECT_EQ(why(R"({"dependentRequired":{"a":"b"}})"),
            "schema #: \"dependentRequired\" must be an object of arrays of strings");
}

TEST(SchemaObjects, NamesWithConstraints) {
  const std::string dict = R"({"type":"object","additionalProperties":{"const":1},)";
  expect_schema(dict + R"("propertyNames":{"pattern":"^[a-z]+$","maxLength":3}})",
                {"{}", R"({"a":1})", R"({"abc":1,"x":1})"},
                {R"({"A":1})", R"({"abcd":1})", R"({"":1})"});
  expect_schema(dict + R"("propertyNames":{"minLength":2,"type":"string"}})", {R"({"ab":1})"},
                {R"({"a":1})"});
  expect_schema(dict + R"("propertyNames":{"$ref":"#/$defs/n"},"$defs":{"n":{"format":"uuid"}}})",
                {R"({"01234567-89ab-cdef-0123-456789abcdef":1})"}, {R"({"a":1})"});
  // Names from a list: each at most once, in the order of the list.
  expect_schema(dict + R"("propertyNames":{"enum":["x","y","z"]},"minProperties":2})",
                {R"({"x":1,"z":1})", R"({"x":1,"y":1,"z":1})"},
                {R"({"x":1})", R"({"x":1,"x":1})", R"({"x":1,"w":1})"});
  expect_schema(dict + R"("propertyNames":{"enum":["x","y"]},"required":["x","y"]})",
                {R"({"x":1,"y":1})"}, {"{}", R"({"x":1})"});
  // With properties: names that do not match cannot be present.
  expect_schema(R"({"properties":{"ab":{"const":1},"B":{"const":2}},"propertyNames":)"
                R"({"pattern":"^[a-z]"},"additionalProperties":{"const":3}})",
                {"{}", R"({"ab":1,"abc":3})", R"({"a":3})"},
                {R"({"B":2})", R"({"ab":3})", R"({"C":3})", R"({"B":3})"});
  expect_schema(R"({"properties":{"ab":{"const":1},"b":{"const":2}},"propertyNames":)"
                R"({"maxLength":1}})",
                {"{}", R"({"b":2})"}, {R"({"ab":1})"});
  const auto why = [](const std::string& schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_EQ(why(R"({"required":["B"],"propertyNames":{"pattern":"^[a-z]"}})"),
            "no text satisfies the constraint");
  EXPECT_NE(why(R"({"properties":{"ab":{}},"additionalProperties":true,"propertyNames":)"
                R"({"anyOf":[{"pattern":"^a"},{"pattern":"^b"}]}})")
                .find("schema #: \"propertyNames\" is not supported with \"anyOf\""),
            std::string::npos);
}

TEST(SchemaObjects, TooManyCombinationsAreRefused) {
  std::string properties, needs;
  for (int i = 0; i < 40; ++i) {
    properties += concat(i == 0 ? "" : ",", "\"p", i, "\":{\"const\":1}");
    if (i < 20) needs += concat(i == 0 ? "" : ",", "\"p", i, "\":[\"p", 39 - i, "\"]");
  }
  EXPECT_NE(refused(Kind::kJsonSchema, concat(R"({"properties":{)", properties,
                                              R"(},"dependentRequired":{)", needs, "}}"))
                .find("schema #: \"dependentRequired\" is not supported where it makes more than"),
            std::string::npos);
  EXPECT_EQ(refused(Kind::kJsonSchema, concat(R"({"properties":{)", properties,
                                              R"(},"minProperties":20,"maxProperties":30})")),
            "nothing");
}

// Properties of one schema are additional properties of another one that also applies.
TEST(SchemaObjects, ClosedObjectsThatHoldTogether) {
  expect_schema(R"({"allOf":[{"properties":{"a":{"const":1},"c":{"const":3}},)"
                R"("additionalProperties":false},{"properties":{"a":{},"b":{"const":2}}}]})",
                {"{}", R"({"a":1})", R"({"a":1,"c":3})"}, {R"({"b":2})", R"({"a":1,"b":2})"});
  expect_schema(R"({"allOf":[{"additionalProperties":{"type":"integer"}},)"
                R"({"properties":{"x":{"minimum":2}},"required":["x"]}]})",
                {R"({"x":3})", R"({"x":2,"y":1})"}, {R"({"x":1})", R"({"x":"a"})", R"({"y":1})"});
  expect_schema(R"({"allOf":[{"properties":{"a":{}},"additionalProperties":{"maximum":5}},)"
                R"({"properties":{"b":{"type":"integer"}},"additionalProperties":{"const":7}}]})",
                {R"({"a":7})", R"({"b":5})", R"({"a":7,"b":4})"},
                {R"({"a":6})", R"({"b":6})", R"({"c":7})"});
  EXPECT_EQ(refused(Kind::kJsonSchema,
                    R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},)"
                    R"({"properties":{"b":{}},"required":["b"]}]})"),
            "no text satisfies the constraint");
}

TEST(SchemaObjects, MembersWhoseNamesMatchPatterns) {
  expect_schema(R"({"type":"object","patternProperties":{"^x-":{"const":1}},"properties":)"
                R"({"a":{"const":2},"x-b":{"type":"integer"}},"additionalProperties":false})",
                {"{}", R"({"a":2})", R"({"x-b":1})", R"({"a":2,"x-c":1,"x-":1})"},
                {R"({"b":1})", R"({"x-b":2})", R"({"x-c":2})", R"({"x-c":1,"x-b":1})"});
  // Names that match no pattern are additional properties.
  expect_schema(
      R"({"patternProperties":{"^[a-c]$":{"const":1}},"additionalProperties":{"const":2}})",
      {"{}", R"({"a":1,"d":2,"ab":2})", R"({"":2})"}, {R"({"a":2})", R"({"d":1})"});
  expect_schema(R"({"patternProperties":{"^[a-c]$":{"const":1}}})", {"{}", R"({"a":1})"},
                {R"({"a":2})", R"({"d":1})"});
  // Names that match two patterns are not generated, unless they are declared.
  expect_schema(R"({"patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":5}},)"
                R"("required":["ab"]})",
                {R"({"ab":7})", R"({"ab":5,"ac":1,"cb":5.5})"},
                {R"({"ab":4})", R"({"ab":5.5})", R"({"ab":7,"aab":7})", R"({"ab":7,"cb":4})"});
  // With bounds, other constraints of names, and names that others require.
  expect_schema(R"({"patternProperties":{"^[a-z]+$":{"const":1}},"minProperties":2,)"
                R"("maxProperties":3,"propertyNames":{"maxLength":2}})",
                {R"({"a":1,"b":1})", R"({"ab":1,"b":1,"c":1})"},
                {R"({"a":1})", R"({"abc":1,"b":1})", R"({"a":1,"a":1})", R"({"a":1,"B":1})",
                 R"({"a":1,"b":1,"c":1,"d":1})"});
  expect_schema(R"({"patternProperties":{"^[a-z]+$":{"const":1}},"dependentRequired":)"
                R"({"a":["b"],"C":["d"]},"additionalProperties":false})",
                {R"({"c":1})", R"({"a":1,"b":1})"}, {R"({"a":1})", R"({"c":1,"a":1})"});
  expect_schema(R"({"patternProperties":{"^a":{"const":1}},"propertyNames":{"enum":["a","b"]}})",
                {"{}", R"({"a":1})"}, {R"({"b":1})", R"({"a":2})"});
  expect_schema(R"({"enum":[{"ab":1},{"ab":"x"},{"c":1},{"c":2}],"patternProperties":)"
                R"({"^a":{"type":"integer"}},"additionalProperties":{"const":2}})",
                {R"({"ab":1})", R"({"c":2})"}, {R"({"ab":"x"})", R"({"c":1})"});
  const auto why = [](const char* schema) { return refused(Kind::kJsonSchema, schema); };
  EXPECT_NE(why(R"_({"properties":{"a":{"patternProperties":{"(?=x)":{}}}}})_")
                .find("schema #/properties/a/patternProperties: \"pattern\" cannot be compiled"),
            std::string::npos);
  EXPECT_NE(why(R"({"allOf":[{"patternProperties":{"^a":{}},"additionalProperties":false},)"
                R"({"properties":{"ab":{"type":"null"}}}]})")
                .find("schema #: \"patternProperties\" is not supported together with properties"),
            std::string::npos);
  EXPECT_EQ(why(R"({"patternProperties":[]})"),
            "schema #: \"patternProperties\" must be an object");
  // A oneOf must not assume that a name is impossible if a pattern allows it.
  EXPECT_NE(
      why(R"({"oneOf":[{"type":"object","patternProperties":{"^a":{}},"properties":{"c":{}}},)"
          R"({"type":"object","properties":{"ab":{}},"required":["ab"]}]})")
          .find("\"oneOf\" is not supported"),
      std::string::npos);
}

TEST(SchemaObjects, GivenObjectsAreChecked) {
  expect_schema(R"({"enum":[{"a":1},{"b":1},{"a":1,"b":1},{"C":1}],"propertyNames":)"
                R"({"pattern":"[a-z]"},"dependentRequired":{"b":["a"]}})",
                {R"({"a":1})", R"({"a":1,"b":1})"}, {R"({"b":1})", R"({"C":1})"});
}

}  // namespace
}  // namespace trireme::test_object_schema
