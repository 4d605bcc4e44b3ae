#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "engine/config/parse.h"
#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/core/error.h"

namespace trireme::test_reader {
namespace {

// A key of each kind and status.
const Schema& kitchen() {
  static const Schema schema = [] {
    Schema s("Kitchen");
    s.integer("steps", "", "how many").required().at_least(1).at_most(1e9).alias({"iters"});
    s.integer("batch", "\"auto\"", "how large").or_auto().at_least(1).alias({"sizes.batch"});
    s.number("oven.heat", "0.5", "how hot").above(0).below(1);
    s.number("oven.hours", "1", "how long").at_least(0);
    s.boolean("oven.enabled", false, "whether at all").alias({"bake"});
    s.string("name", "null", "of the dish").or_null();
    s.choice("style", "fried", {"fried", "Boiled"}, "how").synonym("pan", "fried").not_yet({"raw"});
    s.any("list", "[]", "list", "anything");
    s.ignored("colour");
    s.no_effect("candles", "it is day");
    s.no_effect("lamp", "it is day");
    s.integer("spoons", "6", "on the table").at_least(1).auto_as_default();
    s.refused("salt", {"0", "false"}, "the cook salts");
    s.unavailable("guests", {"1"}, "company");
    s.unavailable("band", {}, "music");
    s.finish();
    return s;
  }();
  return schema;
}

struct Read {
  ConfigReport report;
  ConfigValues values;
};

Read read(const std::string& json_text, const std::string& prefix = "") {
  Read result;
  result.values = read_config(kitchen(), parse_json(json_text, "t"), prefix, result.report);
  return result;
}

// The only error of a document, to which the required key is added.
std::string problem(const std::string& members) {
  const Read result = read("{\"steps\": 5" + (members.empty() ? "" : ", " + members) + "}");
  if (result.report.errors().size() > 1) return "several";
  return result.report.ok() ? "" : result.report.errors().front();
}

TEST(ReadConfig, DefaultsAndValues) {
  const Read result = read(R"({"steps": 5e8, "oven": {"heat": 0.25}, "style": "BOILED"})");
  ASSERT_TRUE(result.report.ok()) << result.report.errors().front();
  EXPECT_EQ(result.values.integer("steps"), 500000000);
  EXPECT_TRUE(result.values.is_auto("batch"));
  EXPECT_EQ(result.values.number("oven.heat"), 0.25);
  EXPECT_EQ(result.values.number("oven.hours"), 1.0);
  EXPECT_FALSE(result.values.flag("oven.enabled"));
  EXPECT_EQ(result.values.word("style"), "Boiled");
  EXPECT_EQ(result.values.word("name"), "");
  EXPECT_TRUE(result.values.given("oven.heat"));
  EXPECT_FALSE(result.values.given("oven.hours"));
  EXPECT_THROW(result.values.integer("no_such_key"), Error);
}

TEST(ReadConfig, WrongTypes) {
  EXPECT_EQ(problem(R"("batch": "12")"), "batch: must be an integer or \"auto\", got \"12\"");
  EXPECT_EQ(problem(R"("batch": 1.5)"), "batch: must be an integer or \"auto\", got 1.5");
  EXPECT_EQ(problem(R"("batch": 1e300)"), "batch: must be an integer or \"auto\", got 1e+300");
  EXPECT_EQ(problem(R"("batch": 18446744073709551615)"),
            "batch: must be an integer or \"auto\", got 18446744073709551615");
  EXPECT_EQ(problem(R"("batch": true)"), "batch: must be an integer or \"auto\", got true");
  EXPECT_EQ(problem(R"("batch": null)"), "batch: must be an integer or \"auto\", got null");
  EXPECT_EQ(problem(R"("oven": {"heat": "hot"})"), "oven.heat: must be a number, got \"hot\"");
  EXPECT_EQ(problem(R"("oven": {"heat": "auto"})"), "oven.heat: must be a number, got \"auto\"");
  EXPECT_EQ(problem(R"("oven": {"enabled": 1})"), "oven.enabled: must be true or false, got 1");
  EXPECT_EQ(problem(R"("name": 3)"), "name: must be a string, got 3");
  EXPECT_EQ(problem(R"("style": "grilled")"),
            "style: must be one of fried, Boiled; got \"grilled\"");
  EXPECT_EQ(problem(R"("style": "Raw")"),
            "style: \"Raw\" is not available in this version; use fried, Boiled");
  EXPECT_EQ(problem(R"("style": {"deep": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]})"),
            "style: must be one of fried, Boiled; got "
            "{\"deep\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,...");
  EXPECT_EQ(problem(R"("list": null)"), "list: must not be null");
  EXPECT_EQ(problem(R"("oven": 7)"), "oven: must be an object, got 7");
}

TEST(ReadConfig, OutOfRange) {
  EXPECT_EQ(problem(R"("batch": 0)"), "batch: must be at least 1 or \"auto\", got 0");
  EXPECT_EQ(problem(R"("oven": {"heat": 1})"), "oven.heat: must be above 0 and below 1, got 1");
  EXPECT_EQ(problem(R"("oven": {"hours": -0.5})"), "oven.hours: must be at least 0, got -0.5");
  EXPECT_EQ(read(R"({"steps": 2000000000})").report.errors().at(0),
            "steps: must be at least 1 and at most 1e+09, got 2000000000");
}

TEST(ReadConfig, NumbersAreThoseOfFloat32) {
  EXPECT_EQ(problem(R"("oven": {"hours": 1e39})"),
            "oven.hours: must be at most 3.4e+38 in size, the largest float32, got 1e+39");
  EXPECT_EQ(problem(R"("oven": {"hours": 1e-45})"),
            "oven.hours: must be 0 or at least 1.2e-38 in size, the smallest float32, got 1e-45");
  EXPECT_EQ(problem(R"("oven": {"heat": 0.99999999})"),
            "oven.heat: must be below 1 in float32, too, got 0.99999999");
  EXPECT_EQ(problem(R"("oven": {"hours": 1e38, "heat": 0.9999999})"), "");
}

TEST(ReadConfig, RequiredKeys) {
  EXPECT_EQ(read("{}").report.errors(), std::vector<std::string>{"steps: is required: how many"});
  EXPECT_EQ(read("[]").report.errors(),
            std::vector<std::string>{"(top level): must be an object, got []"});
  // A misspelled required key is reported once.
  EXPECT_EQ(read(R"({"stesp": 1})").report.errors(),
            std::vector<std::string>{"stesp: unknown key; did you mean \"steps\"?"});
}

TEST(ReadConfig, UnknownKeysNameTheNearest) {
  EXPECT_EQ(problem(R"("oven": {"haet": 1})"), "oven.haet: unknown key; did you mean \"heat\"?");
  EXPECT_EQ(problem(R"("ovne": {"heat": 1})"), "ovne: unknown key; did you mean \"oven\"?");
  EXPECT_EQ(problem(R"("hours": 1)"), "hours: unknown key; did you mean \"oven.hours\"?");
  EXPECT_EQ(problem(R"("bathc": 1)"), "bathc: unknown key; did you mean \"batch\"?");
  EXPECT_EQ(problem(R"("oven": {"zzz": 1})"),
            "oven.zzz: unknown key; oven has heat, hours, enabled");
  EXPECT_EQ(problem(R"("zzz": 1)"),
            "zzz: unknown key; the top level has steps, batch, oven, name, style, list, spoons");
  EXPECT_EQ(problem(R"("oven.heat": 1)"), "oven.heat: a dot in a key; nest objects instead");
  EXPECT_EQ(problem(R"("line\nbreak \u00fc": 1)").substr(0, 39),
            R"("line\nbreak \u00fc": unknown key; the )");
}

TEST(ReadConfig, PathsStandUnderThePrefix) {
  const Read result = read(R"({"steps": 0, "oven": {"haet": 1}, "hours": 2})", "dish");
  EXPECT_EQ(
      result.report.errors(),
      (std::vector<std::string>{"dish.steps: must be at least 1, got 0",
                                "dish.oven.haet: unknown key; did you mean \"heat\"?",
                                "dish.hours: unknown key; did you mean \"dish.oven.hours\"?"}));
  EXPECT_EQ(result.values.spelled("oven.heat"), "dish.oven.heat");
}

TEST(ReadConfig, AliasesMeanTheKey) {
  const Read result = read(R"({"iters": 7, "sizes": {"batch": 3}, "bake": true})");
  ASSERT_TRUE(result.report.ok()) << result.report.errors().front();
  EXPECT_EQ(result.values.integer("steps"), 7);
  EXPECT_EQ(result.values.spelled("steps"), "iters");
  EXPECT_EQ(result.values.integer("batch"), 3);
  EXPECT_TRUE(result.values.flag("oven.enabled"));
  EXPECT_EQ(problem(R"("iters": 6)"), "iters: means the same as steps, which is 5; keep one");
  EXPECT_EQ(problem(R"("sizes": {"batch": 5}, "batch": 6)"),
            "batch: means the same as sizes.batch, which is 5; keep one");
  // Equal values by two names do not conflict, and null counts as not given.
  EXPECT_EQ(problem(R"("sizes": {"batch": 5}, "batch": 5.0)"), "");
  EXPECT_EQ(problem(R"("sizes": {"batch": 0}, "batch": 5)").substr(0, 12), "sizes.batch:");
}

TEST(ReadConfig, ASwitchMayStandForItsSection) {
  EXPECT_TRUE(read(R"({"steps": 1, "oven": true})").values.flag("oven.enabled"));
  EXPECT_EQ(problem(R"("oven": null)"), "");
}

TEST(ReadConfig, ForeignKeys) {
  const Read result = read(R"({"steps": 1, "colour": {"deep": [1]}, "candles": 3})");
  EXPECT_TRUE(result.report.ok());
  EXPECT_EQ(result.report.notes(),
            std::vector<std::string>{"candles: has no effect here: it is day"});
  EXPECT_EQ(problem(R"("salt": 0)"), "");
  EXPECT_EQ(problem(R"("salt": null)"), "");
  EXPECT_EQ(problem(R"("salt": 2)"), "salt: 2 is refused: the cook salts");
  EXPECT_EQ(problem(R"("guests": 1.0)"), "");
  EXPECT_EQ(problem(R"("guests": 4)"),
            "guests: 4 is not available in this version (company); only 1 is");
  EXPECT_EQ(problem(R"("band": {"enabled": false, "size": 3})"), "");
  EXPECT_EQ(problem(R"("band": {"device": "none"})"), "");
  EXPECT_EQ(problem(R"("band": {})"), "");
  EXPECT_EQ(problem(R"("band": {"size": 3})"),
            "band: {\"size\":3} is not available in this version (music)");
}

TEST(ReadConfig, KeysWithoutEffectAreOneNoteForAReason) {
  EXPECT_EQ(read(R"({"steps": 1, "lamp": 2, "candles": 3})").report.notes(),
            std::vector<std::string>{"lamp, candles: have no effect here: it is day"});
  for (const char* nothing : {"false", "null", "{}", R"({"enabled": false, "size": 2})"})
    EXPECT_TRUE(read(concat(R"({"steps": 1, "lamp": )", nothing, "}")).report.notes().empty())
        << nothing;
}

TEST(ReadConfig, ASectionWhoseEveryPartIsSwitchedOffAsksForNothing) {
  EXPECT_EQ(problem(R"("band": {"drums": {"enabled": false}, "names": {"a": 1}})"), "");
  EXPECT_EQ(problem(R"("band": {"enabled": true, "drums": {"enabled": false}})"), "");
  EXPECT_EQ(problem(R"("band": {"enabled": "auto", "size": 2})"), "");
  EXPECT_NE(problem(R"("band": {"enabled": true})"), "");
  EXPECT_NE(problem(R"("band": {"drums": {"enabled": false}, "horns": {"enabled": true}})"), "");
}

TEST(ReadConfig, AutoMayBeAsMuchAsLeftOut) {
  const Read result = read(R"({"steps": 1, "spoons": "auto"})");
  ASSERT_TRUE(result.report.ok());
  EXPECT_EQ(result.values.integer("spoons"), 6);
  EXPECT_FALSE(result.values.given("spoons"));
  EXPECT_TRUE(result.values.is_auto_default("spoons"));
  EXPECT_FALSE(read(R"({"steps": 1})").values.is_auto_default("spoons"));
  EXPECT_EQ(problem(R"("spoons": 0)"), "spoons: must be at least 1 or \"auto\", got 0");
}

TEST(ReadConfig, AllProblemsAreReportedTogether) {
  const Read result = read(R"({"steps": 0, "batch": "x", "zzz": 1, "salt": 1, "guests": 2})");
  EXPECT_EQ(result.report.errors().size(), 5u);
  try {
    result.report.throw_if_errors("dinner.json");
    FAIL();
  } catch (const InputError& e) {
    const std::string what = e.what();
    EXPECT_TRUE(what.starts_with("dinner.json: 5 problems\n  steps: must be")) << what;
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
  }
  try {
    read(R"({"steps": 1, "salt": 1})").report.throw_if_errors("dinner.json");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "dinner.json: salt: 1 is refused: the cook salts");
  }
}

TEST(ReadConfig, AWrongValueLeavesTheDefaultBehind) {
  const Read result = read(R"({"steps": "x", "oven": {"heat": 9}})");
  EXPECT_FALSE(result.values.valid("steps"));
  EXPECT_EQ(result.values.integer("steps"), 0);
  EXPECT_FALSE(result.values.valid("oven.heat"));
  EXPECT_EQ(result.values.number("oven.heat"), 0.5);
  EXPECT_TRUE(result.values.valid("oven.hours"));
}

TEST(ReadConfig, AThousandProblemsDoNotTakeForever) {
  std::string wide = "{";
  for (int i = 0; i < 100000; ++i) wide += concat(i == 0 ? "" : ",", "\"key", i, "\":", i);
  EXPECT_EQ(read(wide + "}").report.errors().size(), 100u);
}

// Any document gives values or errors, and every error is one line with a path.
TEST(ReadConfig, RandomDocumentsNeverBreakIt) {
  std::mt19937 random(7);
  const char* const names[] = {"steps", "iters", "oven", "heat", "bake", "band", "x\n", "", "a.b"};
  const auto value = [&](auto&& self, int depth) -> Json {
    switch (random() % (depth > 3 ? 6 : 8)) {
      case 0: return nullptr;
      case 1: return random() % 2 == 0;
      case 2: return static_cast<int64_t>(random()) - 2000000000;
      case 3: return static_cast<double>(random()) * 1e290;
      case 4: return "auto";
      case 5: return std::string("\xff\n");
      case 6: return Json::array({self(self, depth + 1)});
      default: break;
    }
    Json object = Json::object();
    for (int i = 0; i < 3; ++i) object[names[random() % std::size(names)]] = self(self, depth + 1);
    return object;
  };
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    ConfigReport report;
    read_config(kitchen(), value(value, 0), "", report);
    for (const std::string& error : report.errors()) {
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      EXPECT_NE(error.find(": "), std::string::npos) << error;
      ++errors;
    }
  }
  EXPECT_GT(errors, 3000);
}

TEST(ListedNames, AreAlternatives) {
  EXPECT_EQ(listed_names({"a"}), "a");
  EXPECT_EQ(listed_names({"a", "b"}), "a or b");
  EXPECT_EQ(listed_names({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace trireme::test_reader
