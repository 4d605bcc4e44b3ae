#include <gtest/gtest.h>

#include "engine/config/nearest_word.h"

namespace trireme::test_nearest_word {
namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("lr", "lr"), 0);
  EXPECT_EQ(edit_distance("train_steps", "trian_steps"), 1);   // swap
  EXPECT_EQ(edit_distance("train_steps", "train_step"), 1);    // deletion
  EXPECT_EQ(edit_distance("train_steps", "traain_steps"), 1);  // insertion
  EXPECT_EQ(edit_distance("train_steps", "train_stebs"), 1);   // substitution
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("Train-Steps", "train_steps"), 0);  // case and hyphens are ignored
  EXPECT_EQ(edit_distance("ca", "abc"), 3);  // no edit inside a swap: optimal string alignment
  EXPECT_GE(edit_distance(std::string(100000, 'a'), "a"), 100);  // long names are cheap
}

const std::vector<std::string> kOptions = {
    "--model",         "--tensor-parallel", "--pipeline-parallel", "--micro-batch-size",
    "--max-model-len", "--top-k",           "--tokenizer",         "--kv-cache-dtype"};

TEST(NearestWord, ByEdits) {
  EXPECT_EQ(nearest_word("--modle", kOptions), "--model");
  EXPECT_EQ(nearest_word("--tensor_paralel", kOptions), "--tensor-parallel");
  EXPECT_EQ(nearest_word("--top-p", kOptions), "--top-k");  // where no option is nearer
}

TEST(NearestWord, ByInitials) {
  EXPECT_EQ(nearest_word("--tp", kOptions), "--tensor-parallel");
  EXPECT_EQ(nearest_word("-tp", kOptions), "--tensor-parallel");
  EXPECT_EQ(nearest_word("--pp", kOptions), "--pipeline-parallel");
}

TEST(NearestWord, ByPartsThatAreShorter) {
  EXPECT_EQ(nearest_word("--batch-sz", kOptions), "--micro-batch-size");
  EXPECT_EQ(nearest_word("--mb-size", kOptions), "");  // a part abbreviates one part, not two
  EXPECT_EQ(nearest_word("--cache-dtype", kOptions), "--kv-cache-dtype");
  EXPECT_EQ(nearest_word("--max-model-length", kOptions), "--max-model-len");
  EXPECT_EQ(nearest_word("--tensor-parallel-world-size", kOptions), "--tensor-parallel");
}

TEST(NearestWord, NoneWhereNothingIsNear) {
  for (const char* word : {"--zzzz", "", "-", "--", "__", ".", "--frobnicate"})
    EXPECT_EQ(nearest_word(word, kOptions), "") << word;
  EXPECT_EQ(nearest_word(std::string(1 << 20, 'm'), kOptions), "");
  EXPECT_EQ(nearest_word("--model", {}), "");
}

}  // namespace
}  // namespace trireme::test_nearest_word
