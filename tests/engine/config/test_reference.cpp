#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/reference.h"

namespace trireme::test_reference {
namespace {

const Schema& schema() {
  static const Schema table = [] {
    Schema s("Garden");
    s.section("bed", "Where things grow.");
    s.integer("rows", "", "how many").required().at_least(1).at_most(50);
    s.integer("bed.width", "\"auto\"", "in steps").or_auto().above(0).alias({"w"});
    s.choice("crop", "peas", {"peas", "beans"}, "what").synonym("pois", "peas");
    s.string("owner", "null", "who").or_null();
    s.no_effect("gnome", "it only stands there");
    s.refused("weedkiller", {"false"}, "the bees");
    s.unavailable("glasshouse.size", {"0"}, "early crops").alias({"hothouse"});
    s.finish();
    return s;
  }();
  return table;
}

TEST(JsonSchema, SaysTypesRangesAndDefaults) {
  const Json root = json_schema(schema());
  EXPECT_EQ(root["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(root["additionalProperties"], false);
  EXPECT_EQ(root["required"].dump(), R"(["rows"])");
  const Json& keys = root["properties"];
  EXPECT_EQ(keys["rows"].dump(),
            R"({"description":"how many","type":"integer","minimum":1,"maximum":50})");
  EXPECT_EQ(keys["bed"]["properties"]["width"].dump(),
            R"({"description":"in steps","anyOf":[{"const":"auto"},)"
            R"({"type":"integer","exclusiveMinimum":0}],"default":"auto"})");
  EXPECT_EQ(keys["bed"]["additionalProperties"], false);
  EXPECT_EQ(keys["w"]["description"], "Alias of bed.width. in steps");
  EXPECT_EQ(keys["crop"]["anyOf"][0]["enum"].dump(), R"(["peas","beans","pois"])");
  // As the program reads them: case-insensitive.
  EXPECT_EQ(keys["crop"]["anyOf"][1]["pattern"],
            "^([pP][eE][aA][sS]|[bB][eE][aA][nN][sS]|[pP][oO][iI][sS])$");
  EXPECT_EQ(keys["owner"]["type"].dump(), R"(["string","null"])");
  EXPECT_EQ(keys["owner"]["default"], nullptr);
  EXPECT_EQ(keys["weedkiller"]["description"], "Refused: the bees");
}

TEST(MarkdownReference, ListsEveryKeyWithItsStatus) {
  EXPECT_EQ(markdown_reference(schema()), R"(## Garden

| key | value | default | meaning | aliases |
|---|---|---|---|---|
| `rows` | integer, at least 1, at most 50 | required | how many |  |
| `crop` | peas, beans | `"peas"` | what |  |
| `owner` | string, or null | `null` | who |  |

### bed

Where things grow.

| key | value | default | meaning | aliases |
|---|---|---|---|---|
| `bed.width` | integer, above 0, or auto | `"auto"` | in steps | `w` |

### Accepted, without effect here

| key | accepted values | why |
|---|---|---|
| `gnome` |  | it only stands there |

### Refused, unless the value is one of these

| key | accepted values | why |
|---|---|---|
| `weedkiller` | `false` | the bees |

### Not available in this version, unless the value is one of these

| key | accepted values | what |
|---|---|---|
| `glasshouse.size`, `hothouse` | `0` | early crops |

)");
}

}  // namespace
}  // namespace trireme::test_reference
