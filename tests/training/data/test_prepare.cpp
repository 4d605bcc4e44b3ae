// Text to token files: the same pair for any number of threads and ranks; tokenizers; inspection.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/token_file.h"
#include "engine/text/sentencepiece.h"
#include "parallel/comm/world.h"
#include "tests/support/scratch_directory.h"
#include "training/data/prepare.h"

namespace trireme::test_prepare {
namespace {

using test::ScratchDirectory;

namespace fs = std::filesystem;

void put(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// Several blocks of records: text files, JSON lines with blank lines and empty documents.
void make_corpus(const std::string& folder) {
  put(folder + "/a.txt", "the first text\nhas two lines\n");
  std::string lines;
  for (int i = 0; i < 500; ++i) {
    lines += i % 50 == 7 ? "{\"text\": \"\"}\n\n" : "";
    lines +=
        "{\"text\": \"document " + std::to_string(i) + std::string(size_t(i % 13), '!') + "\"}\n";
  }
  put(folder + "/b.jsonl", lines);
  for (int i = 0; i < 70; ++i) {
    put(folder + "/c/" + std::to_string(100 + i) + ".txt", "file " + std::to_string(i));
  }
}

std::string pair_bytes(const std::string& prefix) {
  return read_small_file(prefix + ".idx") + read_small_file(prefix + ".bin");
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Prepare, IsTheSameForAnyThreadsAndRanks) {
  const ScratchDirectory dir;
  make_corpus(dir / "text");
  PrepareOptions options{.inputs = {dir / "text"}, .output = dir / "out/one"};
  options.append_eod = true;
  fs::create_directory(dir / "out");
  const PrepareStats stats = prepare_data(options);
  EXPECT_EQ(stats.files, 72);
  EXPECT_EQ(stats.documents, 571);
  EXPECT_EQ(stats.empty_documents, 10);
  EXPECT_EQ(stats.tokens, stats.text_bytes + stats.documents);
  const std::string want = pair_bytes(dir / "out/one");
  for (const int threads : {1, 2, 3}) {
    options.threads = threads;
    options.output = dir / ("out/threads" + std::to_string(threads));
    prepare_data(options);
    EXPECT_EQ(pair_bytes(options.output), want) << threads << " threads";
  }
  options.threads = 2;
  for (const int ranks : {1, 2, 3, 20}) {
    options.output = dir / ("ranks" + std::to_string(ranks) + "/out");
    fs::create_directory(dir / ("ranks" + std::to_string(ranks)));
    int64_t documents = 0;
    for (int rank = 0; rank < ranks; ++rank)
      documents += prepare_part(options, rank, ranks).documents;
    EXPECT_EQ(documents, 571);
    merge_parts(options, ranks);
    EXPECT_EQ(pair_bytes(options.output), want) << ranks << " ranks";
    EXPECT_EQ(names_in(dir / ("ranks" + std::to_string(ranks))),
              (std::vector<std::string>{"out.bin", "out.idx"}));
  }
}

TEST(Prepare, RanksAgree) {
  const ScratchDirectory dir;
  make_corpus(dir / "text");
  PrepareOptions options{.inputs = {dir / "text"}, .output = dir / "one"};
  const PrepareStats alone = prepare_data(options);
  options.output = dir / "three";
  run_threads(3, [&](Communicator& world) {
    const PrepareStats stats = prepare_data(options, world);
    EXPECT_EQ(stats.documents, alone.documents);
    EXPECT_EQ(stats.tokens, alone.tokens);
    EXPECT_EQ(stats.empty_documents, alone.empty_documents);
    // The second time the pair exists: refused on every rank.
    EXPECT_THROW(prepare_data(options, world), InputError);
  });
  EXPECT_EQ(pair_bytes(dir / "three"), pair_bytes(dir / "one"));
  put(dir / "text/z.txt", std::string("a\0b", 3));  // one rank reads it, all report it
  options.overwrite = true;
  run_threads(3,
              [&](Communicator& world) { EXPECT_THROW(prepare_data(options, world), InputError); });
  EXPECT_EQ(pair_bytes(dir / "three"), pair_bytes(dir / "one"));
  EXPECT_EQ(names_in(dir.path()),
            (std::vector<std::string>{"one.bin", "one.idx", "text", "three.bin", "three.idx"}));
}

TEST(Prepare, KeepsTheDocuments) {
  const ScratchDirectory dir;
  put(dir / "t/a.txt", "ab\n");
  put(dir / "t/b.jsonl", "{\"text\":\"c\"}\n{\"text\":\"\"}\n{\"text\":\"d\u00e4\"}\n");
  PrepareOptions options{.inputs = {dir / "t"}, .output = dir / "o.bin"};  // a pasted suffix
  options.append_eod = true;
  std::vector<PrepareProgress> seen;
  prepare_data(options, [&](const PrepareProgress& p) { seen.push_back(p); });
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().bytes_done, seen.back().bytes_total);
  EXPECT_EQ(seen.back().documents, 3);
  const TokenFile file(dir / "o");
  EXPECT_EQ(file.type(), TokenType::kU16);
  std::vector<int32_t> tokens(static_cast<size_t>(file.num_tokens()));
  file.copy_tokens(0, file.num_tokens(), tokens.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b', '\n', 256, 'c', 256, 'd', 0xC3, 0xA4, 256}));
}

TEST(Prepare, ComplainsBeforeAnythingIsLost) {
  const ScratchDirectory dir;
  put(dir / "t.txt", "text");
  put(dir / "binary.txt", std::string("a\0b", 3));
  PrepareOptions options{.inputs = {dir / "t.txt"}, .output = dir / "o"};
  prepare_data(options);
  const std::string before = pair_bytes(dir / "o");
  EXPECT_THROW(prepare_data(options), InputError);  // exists
  options.overwrite = true;
  options.inputs = {dir / "t.txt", dir / "binary.txt"};
  EXPECT_THROW(prepare_data(options), InputError);
  options.inputs = {dir / "none"};
  EXPECT_THROW(prepare_data(options), InputError);
  options.inputs = {dir / "t.txt"};
  options.tokenizer = "gpt2";
  EXPECT_THROW(prepare_data(options), InputError);
  EXPECT_EQ(pair_bytes(dir / "o"), before);
  options.tokenizer = "byte";
  put(dir / "e.jsonl", "{\"text\":\"\"}\n");
  options.inputs = {dir / "e.jsonl"};
  options.output = dir / "e";
  EXPECT_THROW(prepare_data(options), InputError);
  EXPECT_FALSE(fs::exists(dir / "e.bin"));
  EXPECT_FALSE(fs::exists(dir / "e.bin.tmp"));
}

TEST(Prepare, TheFirstBadDocumentIsNamedWhateverTheThreads) {
  const ScratchDirectory dir;
  std::string lines;
  for (int i = 1; i <= 200; ++i) lines += i == 90 || i == 150 ? "oops\n" : "{\"text\":\"x\"}\n";
  put(dir / "t.jsonl", lines);
  for (const int threads : {1, 3}) {
    PrepareOptions options{.inputs = {dir / "t.jsonl"}, .output = dir / "o"};
    options.threads = threads;
    try {
      prepare_data(options);
      FAIL();
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("t.jsonl:90 "), std::string::npos) << error.what();
    }
  }
}

// Invalid lines of several kinds between valid ones: the same pair as without them, for any number
// of threads and ranks.
TEST(Prepare, SkipsAndCountsWhatCannotBeReadOnRequest) {
  const ScratchDirectory dir;
  const std::string broken[] = {"oops",          "{\"text\": \"\\ud83d\"}",
                                "[1]",           "{\"txt\": \"x\"}",
                                "{\"text\": 5}", "{\"text\": \"\xFF\"}"};
  std::string lines, good;
  for (int i = 0; i < 60; ++i) {
    const std::string line = concat("{\"text\": \"document ", i, "\"}\n");
    if (i % 10 == 3) lines += broken[i / 10] + "\n";
    lines += line;
    good += line;
  }
  put(dir / "t.jsonl", lines);
  put(dir / "good/t.jsonl", good);
  prepare_data({.inputs = {dir / "good"}, .output = dir / "want"});
  PrepareOptions options{.inputs = {dir / "t.jsonl"}, .output = dir / "o"};
  EXPECT_THROW(prepare_data(options), InputError);  // without the option
  options.skip_invalid = true;
  options.overwrite = true;
  const auto check = [&](const PrepareStats& stats) {
    EXPECT_EQ(stats.documents, 60);
    EXPECT_EQ(stats.skipped_documents, 6);
    EXPECT_EQ(stats.empty_documents, 0);
    ASSERT_EQ(stats.first_skipped.size(), kMaxSkippedShown);
    for (size_t i = 0; i < kMaxSkippedShown; ++i)
      EXPECT_NE(stats.first_skipped[i].problem.find(concat("t.jsonl:", 11 * i + 4)),
                std::string::npos)
          << stats.first_skipped[i].problem;
  };
  for (const int threads : {1, 3}) {
    options.threads = threads;
    check(prepare_data(options));
    EXPECT_EQ(pair_bytes(dir / "o"), pair_bytes(dir / "want"));
  }
  run_threads(3, [&](Communicator& world) { check(prepare_data(options, world)); });
  EXPECT_EQ(pair_bytes(dir / "o"), pair_bytes(dir / "want"));
  put(dir / "t.jsonl", "oops\n");
  EXPECT_THROW(prepare_data(options), InputError);  // no line is left
}

// An escaped U+0000 is a character; a NUL byte indicates a binary file.
TEST(Prepare, TakesAZeroThatALineSpells) {
  const ScratchDirectory dir;
  put(dir / "t.jsonl", "{\"text\": \"a\\u0000b\"}\n");
  EXPECT_EQ(prepare_data({.inputs = {dir / "t.jsonl"}, .output = dir / "o"}).tokens, 3);
  const TokenFile file(dir / "o");
  std::vector<int32_t> tokens(3);
  file.copy_tokens(0, 3, tokens.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 0, 'b'}));
}

TEST(TrainTokenizer, WritesAModelThatPrepareUses) {
  const ScratchDirectory dir;
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "the oar number " + std::to_string(i % 37) + " of the ship\n";
  put(dir / "t.txt", text);
  TrainTokenizerOptions options{.inputs = {dir / "t.txt"}, .output = dir / "x.model"};
  options.vocab_size = 290;
  EXPECT_EQ(train_tokenizer(options), 290);
  EXPECT_THROW(train_tokenizer(options), InputError);  // exists
  const std::string first = read_small_file(dir / "x.model");
  options.overwrite = true;
  train_tokenizer(options);
  EXPECT_EQ(read_small_file(dir / "x.model"), first);
  options.output = dir / "x.json";
  EXPECT_THROW(train_tokenizer(options), InputError);

  PrepareOptions prepare{.inputs = {dir / "t.txt"}, .output = dir / "o"};
  prepare.tokenizer = dir / "x.model";
  prepare.append_eod = true;
  const PrepareStats stats = prepare_data(prepare);
  EXPECT_LT(stats.tokens, stats.text_bytes * 4 / 5);  // pieces longer than a byte
  const auto tokenizer = load_tokenizer(prepare.tokenizer);
  const TokenFile file(dir / "o");
  std::vector<int32_t> tokens(static_cast<size_t>(file.num_tokens()));
  file.copy_tokens(0, file.num_tokens(), tokens.data());
  EXPECT_EQ(tokens.back(), tokenizer->eod_id());
  EXPECT_EQ(tokenizer->decode(tokens), text);
}

TEST(TrainTokenizer, ReadsNoMoreThanItsBudget) {
  const ScratchDirectory dir;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "plain words only\n";
  put(dir / "a.txt", text + "\n\xFF not reached is not allowed either\n");
  put(dir / "b.txt", text);
  put(dir / "c.txt", std::string("a\0b", 3));
  TrainTokenizerOptions options{.inputs = {dir / "b.txt", dir / "c.txt"},
                                .output = dir / "x.model"};
  options.vocab_size = 280;
  EXPECT_THROW(train_tokenizer(options), InputError);  // c.txt is binary
  options.max_bytes = 1000;
  EXPECT_NO_THROW(train_tokenizer(options));  // and is not reached
  // Also for part of a long document: the text after it has no influence.
  const auto model_of = [&](const std::string& more) {
    put(dir / "d.txt", text + more);
    options.inputs = {dir / "d.txt"};
    options.overwrite = true;
    train_tokenizer(options);
    return read_small_file(dir / "x.model");
  };
  EXPECT_EQ(model_of("quite other quick brown foxes\n"), model_of(""));
}

}  // namespace
}  // namespace trireme::test_prepare
