#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/data/examples/example_case.h"
#include "training/data/examples/example_set.h"

namespace trireme::test_example_set {
namespace {

using test::ExampleFiles;
using test::kTemplate;
using test::load_examples;
using test::ScratchDirectory;
using test::template_sources;

TEST(ExampleSet, LongExamplesLoseTheirEndsOrAreLeftOut) {
  ExampleFiles files;
  const std::string file =
      files.write({{"ab", "c"}, {"abcd", "efgh"}, {"abcdefgh", "i"}, {"a", "bcd"}});
  const auto kept = load_examples(file, {.sequence_length = 6, .vocab_size = 257});
  EXPECT_EQ(kept->items(), 3);
  EXPECT_EQ(kept->stats().records, 4);
  EXPECT_EQ(kept->stats().truncated, 1);
  EXPECT_EQ(kept->stats().dropped_cut, 1);  // its response was cut off entirely
  EXPECT_EQ(kept->stats().dropped_unlearned, 0);
  EXPECT_NE(kept->describe().find("1 dropped: truncated before the response (longest 10 tokens)"),
            std::string::npos)
      << kept->describe();
  EXPECT_EQ(kept->length(1), 6);
  EXPECT_EQ(kept->stats().targets, 2 + 3 + 4);
  const auto whole =
      load_examples(file, {.sequence_length = 6, .vocab_size = 257, .drop_long = true});
  EXPECT_EQ(whole->items(), 2);
  EXPECT_EQ(whole->stats().dropped_long, 2);
  EXPECT_THROW(load_examples(file, {.sequence_length = 6, .vocab_size = 256}), InputError);
  EXPECT_THROW(load_examples(file, {.sequence_length = 1, .vocab_size = 257, .drop_long = true}),
               InputError);
}

TEST(ExampleSet, ItsFingerprintIsThatOfTokensAndMasks) {
  const Example a{{1, 2, 3}, {0, 1, 1}}, mask{{1, 2, 3}, {0, 0, 1}}, token{{1, 2, 4}, {0, 1, 1}};
  const Example first{{1, 2}, {0, 1}}, second{{3, 4, 5, 6}, {0, 1, 1, 1}};
  const auto of = [](std::vector<Example> documents) {
    return ExampleSet(documents).fingerprint();
  };
  EXPECT_EQ(of({a}), of({a}));
  const std::set<std::string> all{of({a}),    of({mask}),          of({token}),
                                  of({a, a}), of({first, second}), of({second, first})};
  EXPECT_EQ(all.size(), 6u);
}

TEST(ExampleSet, RecordsWithoutAnAssistantAreDistinguished) {
  const ScratchDirectory dir;
  std::ofstream(dir / "a.jsonl") << R"({"messages": [{"role": "user", "content": "a"}]})"
                                 << "\n"
                                 << R"({"text": "abc"})"
                                 << "\n";
  const auto tokenizer = make_byte_tokenizer();
  const ExampleReader reader(*tokenizer, template_sources(kTemplate), true);
  const ExampleSet set({dir / "a.jsonl"}, reader, {.sequence_length = 8, .vocab_size = 257});
  EXPECT_EQ(set.stats().dropped_unlearned, 1);
  EXPECT_NE(set.describe().find("no assistant message"), std::string::npos);
  std::ofstream many(dir / "b.jsonl");
  many << R"({"text": "abc")";
  for (int i = 0; i < 4097; ++i) many << concat(", \"", i, "\": 0");
  many << "}\n";
  many.close();
  EXPECT_THROW(ExampleSet({dir / "b.jsonl"}, reader, {.sequence_length = 8, .vocab_size = 257}),
               InputError);
}

TEST(ExampleSet, ReadsAnArrayOfRecords) {
  const ScratchDirectory dir;
  const std::string one = R"({"prompt": "a", "completion": "b"})", two = R"({"text": "abc"})";
  std::ofstream(dir / "a.jsonl") << one << "\n" << two << "\n";
  std::ofstream(dir / "a.json") << "[\n  " << one << ",\n  " << two << "\n]\n";
  std::ofstream(dir / "bad.json") << "[" << one << ",\n" << two << ",\n{\"messages\": 3}]";
  const auto tokenizer = make_byte_tokenizer();
  const ExampleReader reader(*tokenizer, {{"default", kTemplate}}, true);
  const ExampleSetOptions options{.sequence_length = 8, .vocab_size = 257};
  EXPECT_EQ(ExampleSet({dir / "a.json"}, reader, options).fingerprint(),
            ExampleSet({dir / "a.jsonl"}, reader, options).fingerprint());
  try {
    ExampleSet({dir / "bad.json"}, reader, options);
    FAIL() << "is read";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("bad.json:3: record 3: "), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace trireme::test_example_set
