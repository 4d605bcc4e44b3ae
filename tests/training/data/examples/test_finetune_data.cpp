#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "engine/core/error.h"
#include "engine/ops/loss/cross_entropy.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/data/examples/example_case.h"
#include "training/data/examples/example_set.h"
#include "training/data/examples/finetune_data.h"

namespace trireme::test_finetune_data {
namespace {

using test::ExampleFiles;
using test::load_examples;
using test::ScratchDirectory;

// Every learned token, with all tokens that it may attend to.
std::multiset<std::string> learned_in(const MicroBatch& batch) {
  std::multiset<std::string> out;
  for (size_t d = 0; d + 1 < batch.cu_seqlens.size(); ++d) {
    std::string before;
    for (auto i = static_cast<size_t>(batch.cu_seqlens[d]);
         i < static_cast<size_t>(batch.cu_seqlens[d + 1]); ++i) {
      EXPECT_EQ(batch.positions[i], static_cast<int32_t>(before.size()));
      before += static_cast<char>(batch.tokens[i]);
      if (batch.targets[i] == kIgnoredTarget) continue;
      out.insert(
          concat(before, ">", batch.targets[i] == 256 ? '$' : static_cast<char>(batch.targets[i])));
    }
  }
  return out;
}

TEST(ExampleSource, PacksWithoutChangingWhatIsLearned) {
  ExampleFiles files;
  std::vector<std::pair<std::string, std::string>> answers;
  for (int i = 0; i < 23; ++i)
    answers.emplace_back(std::string(static_cast<size_t>(1 + i % 5), static_cast<char>('a' + i)),
                         std::string(static_cast<size_t>(1 + i % 4), 'z'));
  const auto set =
      load_examples(files.write(answers), {.sequence_length = 16, .vocab_size = 257, .threads = 3});
  std::vector<int64_t> all(static_cast<size_t>(set->items()));
  std::iota(all.begin(), all.end(), int64_t{0});
  ExampleSource alone(set, all, {.sequence_length = 16, .packing = false});
  ExampleSource packed(set, all, {.sequence_length = 16, .packing = true});
  EXPECT_EQ(alone.num_samples(), 23);
  EXPECT_LT(packed.num_samples(), 12);
  MicroBatch one, several;
  alone.fill(0, 23, one);
  packed.fill(0, packed.num_samples(), several);
  EXPECT_EQ(learned_in(one), learned_in(several));
  EXPECT_EQ(one.valid_targets, set->stats().targets);
  EXPECT_EQ(several.valid_targets, set->stats().targets);
  EXPECT_EQ(several.cu_seqlens.back(), std::ssize(several.tokens));
  EXPECT_EQ(several.global_index[16], 16);
  // Beyond the last sample there are no targets.
  packed.fill(packed.num_samples(), 2, several);
  EXPECT_EQ(several.valid_targets, 0);
  EXPECT_EQ(several.cu_seqlens, (std::vector<int32_t>{0, 16, 32}));
}

TEST(ExampleSource, VisitsEverythingOnceAnEpochInAnotherOrder) {
  ExampleFiles files;
  std::vector<std::pair<std::string, std::string>> answers;
  for (int i = 0; i < 20; ++i)
    answers.emplace_back(std::string(1, static_cast<char>('a' + i)), "z");
  const auto set = load_examples(files.write(answers), {.sequence_length = 4, .vocab_size = 257});
  std::vector<int64_t> items{1, 3, 5, 7, 9, 11};
  const ExampleSource::Options options{
      .sequence_length = 4, .packing = false, .shuffle = true, .seed = 5, .epochs = 2.5};
  ExampleSource source(set, items, options), again(set, items, options);
  EXPECT_EQ(source.num_samples(), 15);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t s = 0; s < 18; ++s) {
    if (s % 6 == 0) epochs.emplace_back();
    for (const int64_t item : source.items_of(s)) epochs.back().push_back(item);
  }
  EXPECT_EQ(epochs[2].size(), 3U);
  EXPECT_NE(epochs[0], epochs[1]);
  for (int e : {0, 1}) {
    std::vector<int64_t> sorted = epochs[static_cast<size_t>(e)];
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, items);
  }
  // A sample is the same in any order of access.
  for (int64_t s : {14, 2, 7, 0}) EXPECT_EQ(again.items_of(s), source.items_of(s));
  EXPECT_TRUE(source.items_of(15).empty());
}

}  // namespace
}  // namespace trireme::test_finetune_data
