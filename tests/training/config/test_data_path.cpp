#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "training/config/data_path.h"

namespace trireme::test_data_path {
namespace {

std::string parts(const std::string& json_text) {
  ConfigReport report;
  const auto blend = read_data_path(parse_json(json_text, "t"), "data.data_path", report);
  if (!report.ok()) return report.errors().front();
  return data_path_to_json(blend).dump();
}

TEST(DataPath, TakesEveryForm) {
  EXPECT_EQ(parts("null"), "null");
  EXPECT_EQ(parts(R"("a")"), R"([1.0,"a"])");
  EXPECT_EQ(parts(R"("dir/a.bin")"), R"([1.0,"dir/a"])");
  EXPECT_EQ(parts(R"(["my folder/a.idx"])"), R"([1.0,"my folder/a"])");
  EXPECT_EQ(parts(R"([0.3, "a", 7, "b"])"), R"([0.3,"a",7.0,"b"])");
  EXPECT_EQ(parts(R"(["0.3", "a", "0.7", "b"])"), R"([0.3,"a",0.7,"b"])");
  EXPECT_EQ(parts(R"("0.3 a  0.7 b")"), R"([0.3,"a",0.7,"b"])");
}

std::string sets(const std::string& json_text) {
  ConfigReport report;
  const auto read =
      read_validation_sets(parse_json(json_text, "t"), "data.valid_data_path", report);
  std::string problems;
  for (const std::string& problem : report.errors()) problems += problem + "\n";
  return report.ok() ? validation_sets_to_json(read).dump() : problems;
}

TEST(DataPath, ValidationSetsHaveNamesOrStandAlone) {
  EXPECT_EQ(sets("null"), "null");
  EXPECT_EQ(sets(R"("a")"), R"([1.0,"a"])");
  EXPECT_EQ(sets(R"({"wiki": "a.bin", "code-2.0": [3, "b", 7, "c"], "x_y": "1 d 2 e"})"),
            R"({"wiki":[1.0,"a"],"code-2.0":[3.0,"b",7.0,"c"],"x_y":[1.0,"d",2.0,"e"]})");
}

TEST(DataPath, NamesOfValidationSetsAreFitForTags) {
  const std::string path = "data.valid_data_path";
  EXPECT_EQ(sets("{}"),
            path + ": is an empty object, expected at least one set; use null for none\n");
  EXPECT_EQ(sets(R"({"wiki": null})"),
            path +
                ".wiki: expected a prefix, a list [weight, prefix, ...], or a string \"weight "
                "prefix ...\", got null\n");
  for (const std::string name : {"a b", "a/b", "a\\n", "\u00e9", "a|b"}) {
    const std::string problem = sets(R"({")" + name + R"(": "a"})");
    EXPECT_NE(problem.find("at most 64 letters, digits"), std::string::npos) << problem;
  }
  const std::string longest(64, 'n');
  EXPECT_NE(sets(R"({")" + longest + R"(n": "a"})").find("at most 64"), std::string::npos);
  EXPECT_EQ(sets(R"({")" + longest + R"(": "a"})"), R"({")" + longest + R"(":[1.0,"a"]})");
  // All errors at once, each with its position.
  EXPECT_EQ(sets(R"({"": "a", "test": "b", "wiki": [0, "c"], "code": "d"})"),
            path + ": has a set with an empty name; give it one\n" + path +
                ": the set name \"test\" is reserved for data.test_data_path; use another\n" +
                path + ".wiki: expected weights above 0, got [0,\"c\"]\n");
}

TEST(DataPath, SaysWhatIsWrong) {
  const std::string forms =
      "data.data_path: expected a prefix, a list [weight, prefix, ...], or a string \"weight "
      "prefix ...\", got ";
  const std::string weight = "data.data_path: expected a weight before each prefix, got ";
  EXPECT_EQ(parts("3"), forms + "3");
  EXPECT_EQ(parts("[]"), forms + "[]");
  EXPECT_EQ(parts("\"\""), forms + "\"\"");
  EXPECT_EQ(parts("[\"\"]"), weight + "[\"\"]");
  EXPECT_EQ(parts(R"(["a", "b"])"), weight + R"(["a","b"])");
  EXPECT_EQ(parts(R"(["a", "b", "c"])"), weight + R"(["a","b","c"])");
  EXPECT_EQ(parts(R"([0.5, 0.5])"), forms + "[0.5,0.5]");
  EXPECT_EQ(
      parts(R"([1e308, "a", 1e308, "b"])"),
      R"(data.data_path: expected weights with a finite sum in float64, got [1e+308,"a",1e+308,"b"])");
  EXPECT_EQ(
      parts(R"([1e-20, "a", 1e5, "b"])"),
      "data.data_path: expected no negligible weight, but one is 1e-20 in a sum of 1e+05, got "
      R"([1e-20,"a",100000.0,"b"])");
  EXPECT_EQ(parts(R"([0, "a"])"), R"(data.data_path: expected weights above 0, got [0,"a"])");
  EXPECT_EQ(parts(R"("nan a 1 b")"), weight + R"("nan a 1 b")");
}

TEST(Split, ThreeNumbersNotAllZero) {
  using Weights = std::array<double, 3>;
  Weights weights{};
  const std::vector<std::pair<const char*, Weights>> all_good = {
      {"969,30,1", {969, 30, 1}}, {"969, 30, 1", {969, 30, 1}}, {" 90 ,10", {90, 10, 0}},
      {"1", {1, 0, 0}},           {"0.9,0.1,0", {0.9, 0.1, 0}}, {"0,0,1", {0, 0, 1}},
      {"9e2,5e1", {900, 50, 0}}};
  for (const auto& [good, want] : all_good) {
    EXPECT_EQ(read_split(good, weights), "") << good;
    EXPECT_EQ(weights, want) << good;
  }
  for (const char* bad :
       {"", " ", "0,0,0", "1,-1", "a", "1,2,3,4", "1 2", "1,,2", "nan", "inf", "1e999"})
    EXPECT_NE(read_split(bad, weights), "") << bad;
}

}  // namespace
}  // namespace trireme::test_data_path
