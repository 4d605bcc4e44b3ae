// Token files: Megatron's bytes, round trips, DeepSpeed's type codes, hostile indices.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>

#include "engine/core/error.h"
#include "engine/io/token_file.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_token_file {
namespace {

using test::ScratchDirectory;
using Documents = std::vector<std::vector<int32_t>>;

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<uint8_t>(c);
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Hand-written index with every field adjustable.
struct RawIndex {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> lengths{3, 2};
  std::vector<int64_t> pointers{0, 6};
  std::vector<int64_t> documents{0, 1, 2};
  uint64_t sequences = 2, entries = 3;  // as declared in the header
  std::string tail;

  std::string bytes() const {
    std::string out = magic;
    append(out, version);
    append(out, code);
    append(out, sequences);
    append(out, entries);
    for (const int32_t v : lengths) append(out, v);
    for (const int64_t v : pointers) append(out, v);
    for (const int64_t v : documents) append(out, v);
    return out + tail;
  }
};

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// "" when the pair opens, else the error.
std::string open_error(const std::string& index, const std::string& data) {
  const ScratchDirectory dir;
  put(dir / "x.idx", index);
  put(dir / "x.bin", data);
  try {
    const TokenFile file(dir / "x");
    std::vector<int32_t> all(static_cast<size_t>(file.num_tokens()));
    file.copy_tokens(0, file.num_tokens(), all.data());
    return "";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
}

std::vector<int32_t> tokens_of(const TokenFile& file, int64_t document) {
  const int64_t begin = file.sequence_begin(file.document_begin(document));
  const int64_t end = file.sequence_begin(file.document_begin(document + 1));
  std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
  file.copy_tokens(begin, end - begin, tokens.data());
  return tokens;
}

void write(const std::string& prefix, TokenType type, const Documents& documents) {
  TokenFileWriter writer(prefix, type);
  for (const auto& document : documents) writer.add_document(document);
  writer.commit();
}

TEST(TokenFile, WritesMegatronsBytes) {
  const ScratchDirectory dir;
  write(dir / "a", TokenType::kU16, {{1, 2, 3, 50256}, {7, 50256}, {9, 9, 9, 9, 50256}});
  EXPECT_EQ(hex(read_small_file(dir / "a.bin")), "01000200030050c4070050c4090009000900090050c4");
  EXPECT_EQ(hex(read_small_file(dir / "a.idx")),
            "4d4d4944494458000001000000000000000803000000000000000400000000000000"
            "04000000"
            "0200000005000000000000000000000008000000000000000c000000000000000000000000000000"
            "010000000000000002000000000000000300000000000000");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.bin.tmp"));
  EXPECT_FALSE(std::filesystem::exists(dir / "a.idx.tmp"));
}

TEST(TokenFile, ChoosesMegatronsType) {
  EXPECT_EQ(token_type_for_vocabulary(65499), TokenType::kU16);
  EXPECT_EQ(token_type_for_vocabulary(65500), TokenType::kI32);
}

TEST(TokenFile, ReadsBackWhatWasWritten) {
  std::mt19937 random(1);
  const ScratchDirectory dir;
  for (int trial = 0; trial < 10; ++trial) {
    const TokenType type = trial % 2 == 0 ? TokenType::kU16 : TokenType::kI32;
    const uint32_t limit = type == TokenType::kU16 ? 65535u : 2147483647u;
    Documents documents(random() % 40);
    for (auto& document : documents) {
      document.resize(random() % 20);
      for (int32_t& token : document) token = static_cast<int32_t>(random() % limit);
    }
    write(dir / "r", type, documents);  // replaces the pair of the previous trial
    const TokenFile file(dir / "r.bin");
    ASSERT_EQ(file.num_documents(), static_cast<int64_t>(documents.size()));
    EXPECT_EQ(file.type(), type);
    for (size_t d = 0; d < documents.size(); ++d) {
      EXPECT_EQ(tokens_of(file, static_cast<int64_t>(d)), documents[d]);
    }
  }
}

TEST(TokenFile, KeepsSeveralSequencesInADocument) {
  const ScratchDirectory dir;
  {
    TokenFileWriter writer(dir / "s", TokenType::kU16);
    writer.add_document(std::vector<int32_t>{1, 2, 3, 4, 5}, std::vector<int32_t>{2, 0, 3});
    writer.add_document({}, {});
    writer.add_document(std::vector<int32_t>{6});
    writer.commit();
  }
  const TokenFile file(dir / "s");
  EXPECT_EQ(file.num_documents(), 3);
  EXPECT_EQ(file.num_sequences(), 4);
  EXPECT_EQ(file.sequence_begin(2), 2);
  EXPECT_EQ(file.sequence_length(2), 3);
  EXPECT_EQ(file.document_begin(1), 3);
  EXPECT_EQ(file.document_begin(2), 3);
  EXPECT_EQ(tokens_of(file, 1), std::vector<int32_t>{});
  EXPECT_EQ(tokens_of(file, 2), std::vector<int32_t>{6});
}

TEST(TokenFile, MergeEqualsWritingAtOnce) {
  const ScratchDirectory dir;
  const Documents first = {{1, 2}, {}, {3}}, second = {{4, 5, 6}, {7}};
  Documents both = first;
  both.insert(both.end(), second.begin(), second.end());
  write(dir / "one", TokenType::kI32, first);
  write(dir / "two", TokenType::kU16, second);
  write(dir / "both", TokenType::kU16, both);
  {
    TokenFileWriter writer(dir / "merged", TokenType::kU16);
    writer.add_all_of(TokenFile(dir / "one"));
    writer.add_all_of(TokenFile(dir / "two"));
    EXPECT_EQ(writer.num_tokens(), 7);
    writer.commit();
  }
  for (const std::string suffix : {".bin", ".idx"}) {
    EXPECT_EQ(read_small_file(dir / ("merged" + suffix)), read_small_file(dir / ("both" + suffix)));
  }
}

TEST(TokenFile, WriterKeepsTheOldPairUntilCommit) {
  const ScratchDirectory dir;
  write(dir / "w", TokenType::kU16, {{1, 2, 3}});
  {
    TokenFileWriter abandoned(dir / "w", TokenType::kU16);
    abandoned.add_document(std::vector<int32_t>{9});
  }
  EXPECT_EQ(tokens_of(TokenFile(dir / "w"), 0), (std::vector<int32_t>{1, 2, 3}));
  TokenFileWriter writer(dir / "v", TokenType::kU16);
  EXPECT_THROW(writer.add_document(std::vector<int32_t>{65536}), Error);
  EXPECT_THROW(writer.add_document(std::vector<int32_t>{-1}), Error);
}

TEST(TokenFile, AFullDiskKeepsTheOldPair) {
  const ScratchDirectory dir;
  const std::string prefix = dir / "w";
  write(prefix, TokenType::kU16, {{1, 2, 3}});
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t most :
       {rlim_t{500}, rlim_t{3000}}) {  // the .bin does not fit; the .bin fits, the .idx does not
    TokenFileWriter writer(prefix, TokenType::kU16);
    for (int i = 0; i < 400; ++i) writer.add_document(std::vector<int32_t>{4, 5});
    rlimit small = before;
    small.rlim_cur = most;
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THROW(writer.commit(), InputError) << most;
    setrlimit(RLIMIT_FSIZE, &before);
    const TokenFile kept(prefix);
    EXPECT_EQ(kept.num_tokens(), 3);
    EXPECT_EQ(tokens_of(kept, 0), (std::vector<int32_t>{1, 2, 3}));
  }
}

TEST(TokenFile, ReadsEveryTypeAndDeepSpeedsCodes) {
  struct Case {
    uint8_t code;
    int64_t bytes;
    std::string name;
  };
  const std::vector<Case> cases = {{1, 1, "uint8"},
                                   {2, 1, "int8"},
                                   {3, 2, "int16"},
                                   {4, 4, "int32"},
                                   {5, 8, "int64"},
                                   {8, 2, "uint16"},
                                   {6, 2, "uint16 (DeepSpeed's code 6)"},
                                   {7, 4, "uint32 (DeepSpeed's code 7)"},
                                   {8, 8, "uint64 (DeepSpeed's code 8)"}};
  const std::vector<int32_t> want = {5, 6, 7, 8, 127};
  for (const Case& c : cases) {
    RawIndex index;
    index.code = c.code;
    index.pointers = {0, 3 * c.bytes};
    std::string data;
    for (const int64_t token : want) {
      data.append(reinterpret_cast<const char*>(&token), static_cast<size_t>(c.bytes));
    }
    const ScratchDirectory dir;
    put(dir / "x.idx", index.bytes());
    put(dir / "x.bin", data);
    const TokenFile file(dir / "x");
    std::vector<int32_t> got(5);
    file.copy_tokens(0, 5, got.data());
    EXPECT_EQ(got, want) << c.name;
    EXPECT_EQ(file.type_text(), c.name);
  }
}

TEST(TokenFile, RefusesFloatingPointAndWrongSizes) {
  RawIndex index;
  const auto error = [&](uint8_t code, size_t data_bytes) {
    index.code = code;
    return open_error(index.bytes(), std::string(data_bytes, '\0'));
  };
  EXPECT_NE(error(6, 40).find("float64"), std::string::npos);
  EXPECT_NE(error(7, 40).find("float64"), std::string::npos);  // nanotron's double
  for (const uint8_t code : {uint8_t{1}, uint8_t{4}, uint8_t{6}, uint8_t{7}, uint8_t{8}}) {
    EXPECT_NE(error(code, 11).find("truncated"), std::string::npos) << int{code};
    EXPECT_NE(error(code, 0).find("truncated"), std::string::npos) << int{code};
  }
  for (const uint8_t code : {uint8_t{0}, uint8_t{9}, uint8_t{255}}) {
    EXPECT_NE(error(code, 10).find("not supported"), std::string::npos) << int{code};
  }
}

TEST(TokenFile, RefusesHostileIndices) {
  const std::string data(10, '\1');
  const auto refused = [&](const std::function<void(RawIndex&)>& change, const char* why) {
    RawIndex index;
    EXPECT_EQ(open_error(index.bytes(), data), "");
    change(index);
    const std::string error = open_error(index.bytes(), data);
    EXPECT_NE(error.find(why), std::string::npos) << why << " not in: " << error;
  };
  constexpr auto kMax = std::numeric_limits<uint64_t>::max();
  refused([](RawIndex& i) { i.magic = std::string("TNTIDX\0\0\0", 9); }, "TNTIDX");
  refused([](RawIndex& i) { i.magic[0] = 'X'; }, "MMIDIDX");
  refused([](RawIndex& i) { i.version = 2; }, "version 2");
  refused([](RawIndex& i) { i.sequences = kMax; }, "more than");
  refused([](RawIndex& i) { i.sequences = kMax / 12 + 1; }, "more than");
  refused([](RawIndex& i) { i.entries = uint64_t{1} << 61; }, "more than");
  refused([](RawIndex& i) { i.sequences = 3; }, "truncated");
  refused([](RawIndex& i) { i.sequences = 1; }, "calls for");
  refused([](RawIndex& i) { i.entries = 2; }, "truncated");
  refused([](RawIndex& i) { i.tail = "123"; }, "calls for");
  refused([](RawIndex& i) { i.tail = "12"; }, "multimodal");
  refused([](RawIndex& i) { i.lengths[0] = -3; }, "negative length");
  refused([](RawIndex& i) { i.lengths[1] = 2147483647; }, "truncated");
  refused([](RawIndex& i) { i.pointers[1] = 5; }, "recorded at byte 5");
  refused([](RawIndex& i) { i.pointers[1] = -6; }, "recorded at byte -6");
  refused([](RawIndex& i) { i.pointers[0] = std::numeric_limits<int64_t>::min(); }, "recorded at");
  refused([](RawIndex& i) { i.documents[0] = 1; }, "expected 0");
  refused([](RawIndex& i) { i.documents[1] = 3; }, "between");
  refused([](RawIndex& i) { i.documents = {0, 2, 1}; }, "between");
  refused([](RawIndex& i) { i.documents = {0, 1, 1}; }, "ends with");
  const std::string whole = RawIndex().bytes();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_NE(open_error(whole.substr(0, bytes), data), "") << bytes;
  }
}

TEST(TokenFile, RandomDamageNeverLeavesTheFile) {
  std::mt19937 random(3);
  const std::string whole = RawIndex().bytes(), data(10, '\1');
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string damaged = whole;
    for (int k = 0; k < 2; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    refused += open_error(damaged, data).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 400);
}

TEST(TokenFile, RefusesMissingFilesAndBadTokens) {
  const ScratchDirectory dir;
  EXPECT_THROW(TokenFile(dir / "none"), InputError);
  put(dir / "half.idx", RawIndex().bytes());
  EXPECT_THROW(TokenFile(dir / "half"), InputError);
  RawIndex index;
  index.code = 4;
  index.pointers = {0, 12};
  std::string data;
  for (const int32_t token : {1, 2, 3, -4, 5}) append(data, token);
  const std::string error = open_error(index.bytes(), data);
  EXPECT_NE(error.find("token 3 of"), std::string::npos) << error;
}

}  // namespace
}  // namespace trireme::test_token_file
