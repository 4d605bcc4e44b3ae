// Micro-batches: slices of ranks, masks and resets, complete validation sets, invalid data.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/core/error.h"
#include "engine/io/token_file.h"
#include "engine/ops/loss/cross_entropy.h"
#include "tests/support/scratch_directory.h"
#include "training/data/batch_source.h"
#include "training/data/blend.h"
#include "training/data/gpt_dataset.h"

namespace trireme::test_batch_source {
namespace {

using test::ScratchDirectory;
using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;
constexpr int32_t kNo = kIgnoredTarget;

void write(const std::string& prefix, const std::vector<Ints>& documents) {
  TokenFileWriter writer(prefix, TokenType::kU16);
  for (const Ints& document : documents) writer.add_document(document);
  writer.commit();
}

// `documents` documents of growing length with consecutive token ids.
std::vector<Ints> counting(int documents, int32_t first = 0) {
  std::vector<Ints> out;
  for (int d = 0; d < documents; ++d) {
    out.emplace_back(static_cast<size_t>(3 + d % 7));
    std::iota(out.back().begin(), out.back().end(), first);
    first += static_cast<int32_t>(out.back().size());
  }
  return out;
}

DataConfig train_only(const std::string& prefix) {
  DataConfig config;
  config.train = {{1.0, prefix}};
  config.split = "1";
  return config;
}

TEST(TrainSource, FillsWhatTheDatasetHolds) {
  const ScratchDirectory dir;
  write(dir / "t", counting(30));
  const auto source = make_train_source(train_only(dir / "t"), {8, 1000, 77}, 50);
  const auto file = std::make_shared<TokenFile>(dir / "t");
  const GptDataset dataset(file, {0, 30}, 50, 8, 77);
  EXPECT_EQ(source->num_samples(), dataset.num_samples());
  MicroBatch batch;
  source->fill(5, 3, batch);
  Ints tokens(9);
  for (size_t b = 0; b < 3; ++b) {
    dataset.copy_sample(static_cast<int64_t>(5 + b), tokens.data());
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(batch.tokens[b * 8 + i], tokens[i]);
      EXPECT_EQ(batch.targets[b * 8 + i], tokens[i + 1]);
      EXPECT_EQ(batch.positions[b * 8 + i], static_cast<int32_t>(i));
      EXPECT_EQ(batch.global_index[b * 8 + i], static_cast<int64_t>((5 + b) * 8 + i));
    }
  }
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 8, 16, 24}));
  EXPECT_EQ(batch.max_seqlen, 8);
  EXPECT_EQ(batch.valid_targets, 24);
}

// However ranks and micro-batches divide a step, its samples are the same.
TEST(TrainSource, RanksTakeMegatronsSlices) {
  const ScratchDirectory dir;
  write(dir / "t", counting(40));
  const auto step = [&](int ranks, int64_t micro, int64_t consumed) {
    Longs samples;  // in the order of groups, ranks
    const auto source = make_train_source(train_only(dir / "t"), {4, 1000, 1}, 60);
    MicroBatch batch;
    for (int64_t done = 0; done < 12; done += ranks * micro) {
      for (int rank = 0; rank < ranks; ++rank) {
        source->fill(first_sample(consumed + done, micro, rank), micro, batch);
        for (size_t i = 0; i < batch.global_index.size(); i += 4)
          samples.push_back(batch.global_index[i] / 4);
      }
    }
    return samples;
  };
  Longs want(12);
  std::iota(want.begin(), want.end(), int64_t{24});
  for (const auto& [ranks, micro] : std::vector<std::pair<int, int64_t>>{
           {1, 12}, {1, 4}, {2, 6}, {2, 3}, {3, 2}, {4, 3}, {12, 1}}) {
    EXPECT_EQ(step(ranks, micro, 24), want) << ranks << " ranks of " << micro;
  }
}

TEST(TrainSource, MasksAndResetsAtTheEndOfDocuments) {
  const ScratchDirectory dir;
  // One sequence whose only sample is [5 6 9 7 9 9 8 9 | 4], with 9 the end of a document.
  write(dir / "t", {{5, 6, 9, 7, 9, 9, 8, 9, 4}});
  DataConfig config = train_only(dir / "t");
  config.eod_token_id = 9;
  MicroBatch batch;
  const auto fill = [&] { make_train_source(config, {8, 10, 1}, 1)->fill(0, 1, batch); };

  fill();
  EXPECT_EQ(batch.tokens, (Ints{5, 6, 9, 7, 9, 9, 8, 9}));
  EXPECT_EQ(batch.targets, (Ints{6, 9, 7, 9, 9, 8, 9, 4}));
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 8}));

  config.reset_position_ids = true;
  fill();
  EXPECT_EQ(batch.positions, (Ints{0, 1, 2, 0, 1, 0, 0, 1}));
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 8}));

  config.reset_position_ids = false;
  config.reset_attention_mask = true;
  fill();
  EXPECT_EQ(batch.positions, (Ints{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 3, 5, 6, 8}));
  EXPECT_EQ(batch.max_seqlen, 3);
  EXPECT_EQ(batch.valid_targets, 8);

  config.eod_mask_loss = true;
  fill();
  EXPECT_EQ(batch.targets, (Ints{6, 9, kNo, 9, kNo, kNo, 9, kNo}));
  EXPECT_EQ(batch.valid_targets, 4);
}

TEST(TrainSource, TakesTheEndOfDocumentFromTheTokenizer) {
  const ScratchDirectory dir;
  write(dir / "t", {{1, 256, 2, 3}});
  DataConfig config = train_only(dir / "t");
  config.reset_attention_mask = true;
  EXPECT_THROW(make_train_source(config, {3, 257, 1}, 1), InputError);
  config.tokenizer = "byte";
  MicroBatch batch;
  make_train_source(config, {3, 257, 1}, 1)->fill(0, 1, batch);
  EXPECT_EQ(batch.cu_seqlens, (Ints{0, 2, 3}));
  config.tokenizer = "";
  config.eod_token_id = 300;
  EXPECT_THROW(make_train_source(config, {3, 257, 1}, 1), InputError);
}

TEST(TrainSource, BuffersDoNotGrow) {
  const ScratchDirectory dir;
  std::vector<Ints> documents(60, Ints{1, 2, 3, 9});
  documents.push_back(Ints(40, 9));  // documents of one token: the maximum number of boundaries
  write(dir / "t", documents);
  DataConfig config = train_only(dir / "t");
  config.eod_token_id = 9;
  config.reset_attention_mask = true;
  const auto source = make_train_source(config, {10, 10, 1}, 100);
  MicroBatch batch;
  source->fill(0, 2, batch);
  const auto addresses = [&] {
    return std::vector<const void*>{batch.tokens.data(), batch.targets.data(),
                                    batch.positions.data(), batch.global_index.data(),
                                    batch.cu_seqlens.data()};
  };
  const auto before = addresses();
  for (int64_t first = 2; first < 100; first += 2) source->fill(first, 2, batch);
  EXPECT_EQ(addresses(), before);
}

TEST(TrainSource, BlendsInMegatronsOrder) {
  const ScratchDirectory dir;
  write(dir / "a", counting(40));
  write(dir / "b", counting(25, 500));
  DataConfig config;
  config.train = {{3.0, dir / "a"}, {1.0, dir / "b"}};
  config.split = "1";
  const auto source = make_train_source(config, {6, 1000, 3}, 100);
  const std::vector<double> weights = {0.75, 0.25};
  const BlendSizes sizes = blend_sizes(weights, 100);
  EXPECT_EQ(source->num_samples(), sizes.total);
  const BlendIndex index = build_blend_index(weights, sizes.total);
  const GptDataset a(std::make_shared<TokenFile>(dir / "a"), {0, 40}, sizes.build[0], 6, 3);
  const GptDataset b(std::make_shared<TokenFile>(dir / "b"), {0, 25}, sizes.build[1], 6, 3);
  MicroBatch batch;
  Ints tokens(7);
  for (int64_t sample = 0; sample < sizes.total; ++sample) {
    const auto at = static_cast<size_t>(sample);
    source->fill(sample, 1, batch);
    (index.dataset[at] == 0 ? a : b).copy_sample(index.sample[at], tokens.data());
    EXPECT_EQ(batch.tokens, Ints(tokens.begin(), tokens.end() - 1));
  }
}

TEST(TrainSource, RefusesDataTheModelCannotUse) {
  const ScratchDirectory dir;
  write(dir / "t", {{1, 2, 300, 4, 5}});
  const auto error = [&](const DataConfig& config, int64_t vocab) -> std::string {
    try {
      make_train_source(config, {4, vocab, 1}, 1);
      return "";
    } catch (const InputError& e) {
      return e.what();
    }
  };
  DataConfig config = train_only(dir / "t");
  EXPECT_EQ(error(config, 301), "");
  EXPECT_NE(error(config, 300).find("vocabulary of 300"), std::string::npos);
  config.tokenizer = "byte";
  EXPECT_EQ(error(config, 301), "");
  config.tokenizer = "gpt2";
  EXPECT_NE(error(config, 301).find("unknown tokenizer"), std::string::npos);
  config.tokenizer.clear();
  config.train = {};
  EXPECT_NE(error(config, 301).find("names no token file"), std::string::npos);
  config.train = {{1.0, dir / "none"}};
  EXPECT_NE(error(config, 301).find("none.idx"), std::string::npos);
  config.train = {{0.0, dir / "t"}, {1.0, dir / "t"}};
  EXPECT_NE(error(config, 301).find("weight"), std::string::npos);
  EXPECT_THROW(make_train_source(train_only(dir / "t"), {5, 301, 1}, 1), InputError);
}

TEST(TrainSource, ChecksTokensBeyondTheProbe) {
  const ScratchDirectory dir;
  Ints tokens((1 << 20) + 10, 1);
  tokens.back() = 50;
  write(dir / "t", {tokens});
  const auto source = make_train_source(train_only(dir / "t"), {(1 << 20) + 9, 40, 1}, 1);
  MicroBatch batch;
  EXPECT_THROW(source->fill(0, 1, batch), InputError);
}

// The set without a name; nullptr: none.
std::unique_ptr<BatchSource> make_validation_source(const DataConfig& config,
                                                    const BatchSourceOptions& options) {
  std::vector<ValidationSource> sources = make_validation_sources(config, options);
  if (sources.empty()) return nullptr;
  EXPECT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources.front().name, "");
  return std::move(sources.front().source);
}

// The tokens of all samples, in order, are the tokens of the split; each is a target once.
TEST(ValidationSource, CoversTheWholeSplit) {
  const ScratchDirectory dir;
  write(dir / "t", counting(20));
  DataConfig config = train_only(dir / "t");
  config.split = "50,40,10";
  const TokenFile file(dir / "t");
  for (const int64_t S : {1, 4, 7, 33, 1000}) {
    for (const int64_t B : {1, 3}) {
      const auto source = make_validation_source(config, {S, 1000, 1});
      const int64_t begin = file.sequence_begin(10), end = file.sequence_begin(18);
      EXPECT_EQ(source->num_targets(), end - begin - 1);
      Ints inputs, targets;
      MicroBatch batch;
      int64_t valid = 0;
      for (int64_t first = 0; first < source->num_samples(); first += B) {
        source->fill(first, B, batch);
        ASSERT_EQ(batch.tokens.size(), static_cast<size_t>(B * S));
        ASSERT_EQ(batch.cu_seqlens.size(), static_cast<size_t>(B + 1));
        valid += batch.valid_targets;
        for (size_t i = 0; i < batch.tokens.size(); ++i) {
          if (batch.targets[i] == kNo) continue;
          inputs.push_back(batch.tokens[i]);
          targets.push_back(batch.targets[i]);
        }
      }
      Ints want(static_cast<size_t>(end - begin));
      file.copy_tokens(begin, end - begin, want.data());
      EXPECT_EQ(inputs, Ints(want.begin(), want.end() - 1)) << S;
      EXPECT_EQ(targets, Ints(want.begin() + 1, want.end())) << S;
      EXPECT_EQ(valid, source->num_targets());
    }
  }
}

TEST(ValidationSource, UsesItsOwnFilesWhole) {
  const ScratchDirectory dir;
  write(dir / "t", counting(20));
  write(dir / "v", {{1, 2, 3, 4, 5}});
  write(dir / "w", {{7}, {8, 9}});
  DataConfig config = train_only(dir / "t");
  config.split = "969,30,1";
  config.valid = {{"", {{1.0, dir / "v"}, {1.0, dir / "w"}}}};
  const auto source = make_validation_source(config, {3, 1000, 1});
  EXPECT_EQ(source->num_samples(), 3);
  EXPECT_EQ(source->num_targets(), 6);
  MicroBatch batch;
  source->fill(0, 4, batch);
  EXPECT_EQ(batch.tokens, (Ints{1, 2, 3, 4, 5, 0, 7, 8, 9, 0, 0, 0}));
  EXPECT_EQ(batch.targets, (Ints{2, 3, 4, 5, kNo, kNo, 8, 9, kNo, kNo, kNo, kNo}));
  EXPECT_EQ(batch.valid_targets, 6);
  EXPECT_EQ(make_test_source(config, {3, 1000, 1}), nullptr);
  // With separate validation files, training uses its whole file.
  const auto train = make_train_source(config, {3, 1000, 1}, 1);
  EXPECT_NE(train->describe().find("(117 tokens"), std::string::npos) << train->describe();
}

TEST(ValidationSource, SetsWithNamesAreSourcesOfTheirOwn) {
  const ScratchDirectory dir;
  write(dir / "v", {{1, 2, 3, 4, 5}});
  write(dir / "w", {{7}, {8, 9, 10, 11}});
  DataConfig config;
  config.split = "";
  config.valid = {{"late", {{1.0, dir / "w"}}}, {"both", {{0.5, dir / "v"}, {0.5, dir / "w"}}}};
  const auto sources = make_validation_sources(config, {3, 1000, 1});
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].name, "late");
  EXPECT_EQ(sources[0].source->num_targets(), 4);
  EXPECT_EQ(sources[1].name, "both");
  EXPECT_EQ(sources[1].source->num_targets(), 8);
  MicroBatch batch;
  sources[0].source->fill(0, 1, batch);
  EXPECT_EQ(batch.tokens, (Ints{7, 8, 9}));
}

TEST(ValidationSource, EverySetThatCannotBeUsedIsReportedAtOnce) {
  const ScratchDirectory dir;
  write(dir / "v", {{1, 2, 3, 4, 5}});
  write(dir / "x", {{1, 2, 3, 4, 500}});
  DataConfig config;
  config.split = "";
  config.valid = {{"whole", {{1.0, dir / "v"}}},
                  {"absent", {{1.0, dir / "nothing"}}},
                  {"foreign", {{1.0, dir / "x"}}}};
  const auto problem = [&](int64_t length) -> std::string {
    try {
      make_validation_sources(config, {length, 100, 1, true});
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const std::string two = problem(4), three = problem(5);
  EXPECT_NE(two.find("2 problems"), std::string::npos) << two;
  EXPECT_NE(two.find("data.valid_data_path.absent: "), std::string::npos) << two;
  EXPECT_NE(two.find("data.valid_data_path.foreign: token 500"), std::string::npos) << two;
  EXPECT_NE(three.find("data.valid_data_path.whole: has 5 tokens"), std::string::npos) << three;
  config.valid.resize(1);
  EXPECT_EQ(problem(4), "");  // five tokens are four inputs and the last target
}

// Only a run requires whole sequences: another command may use longer ones than the set was made
// for.
TEST(ValidationSource, ASetWithANameMayBeShorterThanASequence) {
  const ScratchDirectory dir;
  write(dir / "v", {{1, 2, 3, 4, 5}});
  write(dir / "y", {{1}});
  DataConfig config;
  config.split = "";
  config.valid = {{"short", {{1.0, dir / "v"}}}};
  const auto sources = make_validation_sources(config, {7, 1000, 1});
  ASSERT_EQ(sources.size(), 1u);
  MicroBatch batch;
  sources[0].source->fill(0, 1, batch);
  EXPECT_EQ(batch.targets, (Ints{2, 3, 4, 5, kNo, kNo, kNo}));
  config.valid = {{"one", {{1.0, dir / "y"}}}};
  EXPECT_THROW(make_validation_sources(config, {7, 1000, 1}), InputError);
}

TEST(ValidationSource, IsAbsentWhenTheSplitIsEmpty) {
  const ScratchDirectory dir;
  write(dir / "t", {{1, 2, 3, 4, 5}});
  DataConfig config = train_only(dir / "t");
  config.split = "969,30,1";  // one sequence cannot be divided
  EXPECT_EQ(make_validation_source(config, {2, 10, 1}), nullptr);
  EXPECT_EQ(make_test_source(config, {2, 10, 1}), nullptr);
}

TEST(ValidationSource, SaysWhyItIsAbsent) {
  const ScratchDirectory dir;
  write(dir / "one", {{1, 2, 3, 4, 5}});
  write(dir / "tiny", {{1, 2, 3}, {4}});
  const auto expect = [](const DataConfig& config, const std::vector<std::string>& words) {
    EXPECT_EQ(make_validation_source(config, {2, 10, 1}), nullptr);
    const std::string why = why_no_validation(config);
    for (const std::string& word : words)
      EXPECT_NE(why.find(word), std::string::npos) << why << "\nlacks: " << word;
  };
  DataConfig config = train_only(dir / "one");
  expect(config, {"data.split 1 ", "no share"});
  config.split = "969,30,1";
  expect(config, {"data.split 969,30,1", "1 document in " + (dir / "one"), "several documents",
                  "data.valid_data_path"});
  config.train.push_back({1.0, dir / "tiny"});
  expect(config, {"1 document in", "2 documents in " + (dir / "tiny")});
  config = train_only(dir / "tiny");
  config.split = "1,1";
  expect(config, {"fewer than two tokens", "2 documents in"});
  config.split.clear();
  expect(config, {"data.valid_data_path is not set"});
  write(dir / "short", {{1}});
  config.valid = {{"", {{1.0, dir / "short"}}}};
  expect(config, {"data.valid_data_path " + (dir / "short"), "two tokens"});
}

}  // namespace
}  // namespace trireme::test_batch_source
