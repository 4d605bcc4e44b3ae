#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_parse {
namespace {

// Error of parse_json() for a text; "": accepted.
std::string problem(const std::string& json_text) {
  try {
    parse_json(json_text, "run.json");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(ParseJson, KeepsValuesAndOrder) {
  const Json json = parse_json(R"({"z": [1, -2, 2.5, true, null, "x\n"], "a": {"b": {}}})", "t");
  EXPECT_EQ(json.dump(), R"({"z":[1,-2,2.5,true,null,"x\n"],"a":{"b":{}}})");
  EXPECT_EQ(parse_json("18446744073709551615", "t").get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{}", "t").dump(), "{}");
}

// Python's json.dump writes them without quotes.
TEST(ParseJson, PythonsNumbersAreStringsInPublishedFiles) {
  EXPECT_EQ(
      without_python_numbers(R"({"a": NaN, "b": [-Infinity,Infinity], "NaN": "\"NaN, Infinity"})"),
      R"({"a": "NaN", "b": ["-Infinity","Infinity"], "NaN": "\"NaN, Infinity"})");
  for (const std::string text : {"{\"a\": \"Infinity\"}", "NaNs", "xNaN", "-1", "\"a\\", ""})
    EXPECT_EQ(without_python_numbers(text), text);
  const test::ScratchDirectory dir;
  std::ofstream(dir / "config.json") << R"({"a": -Infinity, "b": 1})";
  EXPECT_EQ(parse_published_json_file(dir / "config.json").dump(), R"({"a":"-Infinity","b":1})");
  EXPECT_THROW(parse_json_file(dir / "config.json"), InputError);
}

TEST(ParseJson, SyntaxErrorsNameFileLineAndColumn) {
  EXPECT_EQ(problem("{\"a\": 1,\n \"b\": [1, 2,}"),
            "run.json:2:13: not valid JSON: syntax error while parsing value - unexpected '}'; "
            "expected '[', '{', or a literal");
  EXPECT_TRUE(problem("{\"a\": 1}\n  x").starts_with("run.json:2:3: not valid JSON: "));
  EXPECT_TRUE(problem("").starts_with("run.json:1:1: not valid JSON: "));
  EXPECT_TRUE(problem("{\n\"a\" 1}").starts_with("run.json:2:5: not valid JSON: "));
  EXPECT_TRUE(problem("{\"a\": NaN}").starts_with("run.json:1:7: not valid JSON: "));
  EXPECT_TRUE(problem("{'a': 1}").starts_with("run.json:1:2: not valid JSON: "));
}

TEST(ParseJson, CommentsAreRefusedByName) {
  EXPECT_TRUE(problem("{\n// why\n\"a\": 1}").ends_with("(JSON has no comments)"));
  EXPECT_TRUE(problem("{\"a\": 1} # why").ends_with("(JSON has no comments)"));
}

TEST(ParseJson, ARepeatedKeyIsAnError) {
  EXPECT_EQ(problem(R"({"a": 1, "a": 1})"), "run.json: \"a\" is given twice");
  EXPECT_EQ(problem(R"({"x": {"y": {"a": 1, "b": 2, "a": 3}}})"),
            "run.json: \"x.y.a\" is given twice");
  EXPECT_EQ(problem(R"([{"a": 1}, {"a": 2}])"), "");
}

TEST(ParseJson, NumbersThatDoNotFitAreErrors) {
  EXPECT_EQ(problem("[1e999]"), "run.json:1:6: not valid JSON: number overflow parsing '1e999'");
}

TEST(ParseJson, DepthIsLimited) {
  const auto nested = [](int levels) {
    return std::string(static_cast<size_t>(levels), '[') +
           std::string(static_cast<size_t>(levels), ']');
  };
  EXPECT_EQ(problem(nested(kMaxConfigDepth)), "");
  EXPECT_EQ(problem(nested(kMaxConfigDepth + 1)), "run.json: nested deeper than 64 levels");
  EXPECT_EQ(problem(nested(1000000)), "run.json: nested deeper than 64 levels");
}

TEST(ParseJson, SizeIsLimited) {
  const std::string blanks(static_cast<size_t>(kMaxConfigBytes) - 2, ' ');
  EXPECT_EQ(problem(blanks + "{}"), "");
  EXPECT_EQ(problem(blanks + " {}"),
            "run.json: 16777217 bytes; a configuration has at most 16777216");
}

TEST(ParseJson, ManyKeysTakeLinearTime) {
  std::string wide = "{";
  for (int i = 0; i < 200000; ++i) wide += concat(i == 0 ? "" : ",", "\"key", i, "\":", i);
  EXPECT_EQ(parse_json(wide + "}", "t").size(), 200000u);
}

TEST(ParseJsonFile, UnreadableFilesAreNamed) {
  const test::ScratchDirectory scratch;
  const auto said = [](const std::string& path) {
    try {
      parse_json_file(path);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string missing = scratch.path() + "/missing.json", empty = scratch.path() + "/empty";
  std::ofstream(empty).flush();
  EXPECT_EQ(said(missing), missing + ": cannot be read: No such file or directory");
  EXPECT_EQ(said(scratch.path()), scratch.path() + ": is a folder, not a JSON file");
  EXPECT_EQ(said(empty), empty + ": is empty");
  const std::string fifo = scratch.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(said(fifo), "cannot read " + fifo + ": it is a FIFO, not a file");
  EXPECT_EQ(said("/dev/null"), "cannot read /dev/null: it is a device, not a file");
}

// Like a shell's <(command), and /dev/stdin of a pipeline.
TEST(ParseJsonFile, ReadsAPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(write(ends[1], "{\"a\": 1}", 8), 8);
  close(ends[1]);
  EXPECT_EQ(parse_json_file("/dev/fd/" + std::to_string(ends[0])).dump(), R"({"a":1})");
  close(ends[0]);
}

// For any bytes the parser returns a document or throws an InputError.
TEST(ParseJson, GarbageNeverBreaksIt) {
  std::mt19937 random(20240607);
  const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn \n\\u/#\x80\xff";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    const bool any_byte = i % 2 == 0;
    for (size_t n = random() % 40; n > 0; --n)
      bytes += any_byte ? static_cast<char>(random() % 256) : alphabet[random() % alphabet.size()];
    accepted += problem(bytes).empty() ? 1 : 0;
  }
  EXPECT_GT(accepted, 10);
  EXPECT_LT(accepted, 10000);
}

}  // namespace
}  // namespace trireme::test_parse
