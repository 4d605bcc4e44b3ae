// Regular expressions compared with the tokenizers library, which uses Oniguruma
// (tests/golden/regex.json, by make_regex.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/regex.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"

namespace trireme::test_regex {
namespace {

using nlohmann::json;

constexpr const char* kMark = "\u25A0";

json golden() {
  return test::read_json_file<json>(test::source_folder() + "/tests/golden/regex.json");
}

std::vector<std::string> pieces_of(const PreTokenizer& tokenizer, const std::string& text) {
  Words words{.text = text, .ranges = {{0, text.size()}}, .first = true};
  tokenizer.apply(words);
  std::vector<std::string> out;
  for (const auto& [begin, end] : words.ranges)
    out.push_back(words.text.substr(begin, end - begin));
  return out;
}

TEST(Regex, FindsWhatOnigurumaFinds) {
  const json file = golden();
  const auto texts = file["texts"].get<std::vector<std::string>>();
  ASSERT_GT(file["replaced"].size(), 300u);
  for (const auto& [pattern, results] : file["replaced"].items()) {
    const Normalizer replace(
        {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", kMark}}, "test");
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(replace.apply(texts[i]), results[i].get<std::string>())
          << pattern << " in " << json(texts[i]);
  }
}

// An empty match is a split position, too.
TEST(Regex, SplitsAsTheTokenizersLibraryDoes) {
  const json file = golden();
  const auto texts = file["texts"].get<std::vector<std::string>>();
  ASSERT_GE(file["splits"].size(), 50u);
  for (const json& c : file["splits"]) {
    const PreTokenizer split({{"type", "Split"},
                              {"pattern", {{"Regex", c["pattern"]}}},
                              {"behavior", c["behavior"]},
                              {"invert", c["invert"]}},
                             "test");
    for (size_t i = 0; i < c["pieces"].size(); ++i)
      EXPECT_EQ(pieces_of(split, texts[i]), c["pieces"][i].get<std::vector<std::string>>())
          << c["pattern"] << c["behavior"] << c["invert"] << json(texts[i]);
  }
}

TEST(Regex, RefusesConstructsWithoutATranslation) {
  const json file = golden();
  for (const char* kind : {"refused", "invalid"})
    for (const json& pattern : file[kind]) {
      const auto text = pattern.get<std::string>();
      try {
        const Regex regex(text, "a file");
        ADD_FAILURE() << text;
      } catch (const InputError& e) {
        EXPECT_EQ(std::string(e.what()).rfind("a file: ", 0), 0u) << e.what();
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
      }
    }
}

TEST(Regex, NamesTheConstructThatItRefuses) {
  const auto message = [](const char* pattern) -> std::string {
    try {
      const Regex regex(pattern, "a file");
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message("(?~ab)"),
            "a file: (?~...) (an absent operator) is not supported in the "
            "regular expression \"(?~ab)\"");
  EXPECT_NE(message("\\p{In_Basic_Latin}").find("\\p{In_Basic_Latin} is not supported"),
            std::string::npos);
  EXPECT_NE(message("(?W)\\w").find("the option (?W)"), std::string::npos);
  EXPECT_NE(message("(?<=a*)b").find("lookbehind"), std::string::npos) << message("(?<=a*)b");
}

// Whitespace does not use a regular expression of Oniguruma: in it, joiners belong to words.
TEST(Regex, IsNotWhatWhitespaceUses) {
  const PreTokenizer whitespace({{"type", "Whitespace"}}, "test");
  EXPECT_EQ(pieces_of(whitespace, "a\u00B2b\u200Dc d"),
            (std::vector<std::string>{"a", "\u00B2", "b\u200Dc", "d"}));
  const PreTokenizer words({{"type", "Split"},
                            {"pattern", {{"Regex", "\\w+"}}},
                            {"behavior", "Removed"},
                            {"invert", true}},
                           "test");
  EXPECT_EQ(pieces_of(words, "a\u00B2b\u200Dc d"),
            (std::vector<std::string>{"a\u00B2b", "c", "d"}));
}

TEST(Regex, DeepNestingIsRefused) {
  for (const char* open : {"(", "[", "(?i)", "(?=", "(?(1)"}) {
    std::string pattern;
    for (int i = 0; i < 100000; ++i) pattern += open;
    EXPECT_THROW(Regex(pattern, "test"), InputError) << open;
  }
}

}  // namespace
}  // namespace trireme::test_regex
