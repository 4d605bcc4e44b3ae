#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/override.h"
#include "engine/config/parse.h"
#include "engine/core/error.h"

namespace trireme::test_override {
namespace {

const Schema& schema() {
  static const Schema table = [] {
    Schema s("t");
    s.integer("steps", "1", "h").alias({"iters", "train.steps"});
    s.boolean("half.enabled", false, "h");
    s.number("optimizer.params.lr", "1", "h").alias({"lr"});
    s.string("name", "null", "h").or_null();
    s.finish();
    return s;
  }();
  return table;
}

std::string applied(const std::string& json_text, const std::string& assignment) {
  Json document = parse_json(json_text, "t");
  ConfigReport report;
  apply_override(schema(), parse_override(assignment), document, report);
  return report.ok() ? document.dump() : report.errors().front();
}

TEST(Override, ValuesAreJsonOrElseStrings) {
  EXPECT_EQ(applied("{}", "steps=3"), R"({"steps":3})");
  EXPECT_EQ(applied("{}", "optimizer.params.lr=1e-3"), R"({"optimizer":{"params":{"lr":0.001}}})");
  EXPECT_EQ(applied("{}", "half.enabled=true"), R"({"half":{"enabled":true}})");
  EXPECT_EQ(applied("{}", "name=a=b c"), R"({"name":"a=b c"})");
  EXPECT_EQ(applied("{}", "name="), R"({"name":""})");
  EXPECT_EQ(applied("{}", "name=null"), R"({"name":null})");
  EXPECT_EQ(applied("{}", "name=2024"), R"({"name":"2024"})");
  EXPECT_EQ(applied("{}", "name=1.50"), R"({"name":"1.50"})");
  EXPECT_EQ(applied("{}", "name=true"), R"({"name":"true"})");
  EXPECT_EQ(applied("{}", R"(name="2024")"), R"({"name":"2024"})");
  EXPECT_EQ(applied("{}", R"(list=[0.3,"a"])"), R"({"list":[0.3,"a"]})");
}

TEST(Override, ReplacesEverySpelling) {
  EXPECT_EQ(applied(R"({"iters": 1, "train": {"steps": 2}, "steps": 4})", "steps=3"),
            R"({"train":{},"steps":3})");
  EXPECT_EQ(applied(R"({"optimizer": {"params": {"lr": 1}}})", "lr=2"),
            R"({"optimizer":{"params":{}},"lr":2})");
  EXPECT_EQ(applied(R"({"half": true})", "half.enabled=false"), R"({"half":{"enabled":false}})");
}

TEST(Override, WrongPathsAreErrors) {
  EXPECT_EQ(applied(R"({"name": "x"})", "name.first=1"),
            "--set name.first: passes through \"x\", which is not an object");
  EXPECT_EQ(applied("{}", "a..b=1"), "--set \"a..b\": is not a path of key names joined by dots");
  EXPECT_EQ(applied("[]", "steps=1"), "--set steps: passes through [], which is not an object");
  EXPECT_THROW(parse_override("steps"), InputError);
  EXPECT_THROW(parse_override("=3"), InputError);
}

TEST(Override, EveryKeyIsAFlag) {
  const auto flags = [](const std::vector<std::string>& arguments) {
    return overrides_from_flags(schema(), arguments);
  };
  EXPECT_EQ(
      flags({"--steps", "10", "--optimizer-params-lr=1e-3", "--half-enabled"}),
      (std::vector<std::string>{"steps=10", "optimizer.params.lr=1e-3", "half.enabled=true"}));
  EXPECT_EQ(flags({"--train-steps=2", "--half.enabled", "false", "--lr", "-1"}),
            (std::vector<std::string>{"train.steps=2", "half.enabled=false", "lr=-1"}));
}

TEST(Override, UnknownFlagsNameTheNearest) {
  const auto said = [](const std::vector<std::string>& arguments) {
    try {
      overrides_from_flags(schema(), arguments, {"resume"});
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said({"--stesp", "1"}), "unknown option --stesp; did you mean --steps?");
  EXPECT_EQ(said({"--reusme", "auto"}), "unknown option --reusme; did you mean --resume?");
  EXPECT_EQ(said({"--zzzzzzzz"}), "unknown option --zzzzzzzz");
  EXPECT_EQ(said({"--steps"}), "--steps needs a value");
  EXPECT_EQ(said({"stray"}), "unexpected argument \"stray\"");
}

TEST(ErasePath, TakesAwayOneValue) {
  Json document = parse_json(R"({"a": {"b": 1, "c": 2}, "d": 3})", "t");
  erase_path(document, "a.b");
  erase_path(document, "d.e");
  erase_path(document, "x.y");
  EXPECT_EQ(document.dump(), R"({"a":{"c":2},"d":3})");
}

}  // namespace
}  // namespace trireme::test_override
