// Documents from text files: kinds, order, compression, and one-line errors.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>

#include "engine/core/error.h"
#include "engine/io/text_reader.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_text_reader {
namespace {

using test::ScratchDirectory;
namespace fs = std::filesystem;

void put(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string gzip(const std::string& bytes) {
  z_stream state{};
  deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&state, bytes.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

std::vector<std::string> read_all(const std::vector<std::string>& paths,
                                  const std::string& key = "text") {
  TextReader reader(list_text_files(paths), key);
  std::vector<std::string> documents;
  TextRecord record;
  while (reader.next(&record)) documents.push_back(reader.document(std::move(record)));
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
  return documents;
}

std::string error_of(const std::vector<std::string>& paths, const std::string& key = "text") {
  try {
    read_all(paths, key);
    return "no error";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
}

using Strings = std::vector<std::string>;

TEST(TextReader, OneDocumentAFileOrALine) {
  const ScratchDirectory dir;
  put(dir / "a.txt", "first\n\nstill first\r\n");
  put(dir / "b.jsonl",
      "{\"text\": \"one\"}\n\n  \r\n{\"n\": 2, \"text\": \"tw\\u00f6\"}\r\n{\"text\":\"\"}");
  put(dir / "LICENSE-2.0", "no extension");
  EXPECT_EQ(read_all({dir / "b.jsonl", dir / "a.txt", dir / "LICENSE-2.0"}),
            (Strings{"one", "tw\u00f6", "", "first\n\nstill first\r\n", "no extension"}));
  put(dir / "c.json", "{\"content\": \"x\", \"text\": \"y\"}\n");
  EXPECT_EQ(read_all({dir / "c.json"}, "content"), (Strings{"x"}));
}

TEST(TextReader, DropsAByteOrderMark) {
  const ScratchDirectory dir;
  put(dir / "a.txt", "\xEF\xBB\xBFtext");
  put(dir / "b.jsonl", "\xEF\xBB\xBF{\"text\":\"t\"}\n");
  EXPECT_EQ(read_all({dir / "a.txt", dir / "b.jsonl"}), (Strings{"text", "t"}));
}

TEST(TextReader, FoldersAreSortedRecursiveAndReadOnce) {
  const ScratchDirectory dir;
  put(dir / "d/b.txt", "b");
  put(dir / "d/a/z.txt", "z");
  put(dir / "d/a.txt", "a");
  put(dir / "d/.hidden", "h");
  put(dir / "d/.git/config", "g");
  put(dir / "d/empty.txt", "");
  fs::create_symlink("b.txt", dir / "d/c.txt");
  EXPECT_EQ(read_all({dir / "d"}), (Strings{"z", "a", "b"}));
  EXPECT_EQ(read_all({dir / "d/b.txt", dir / "d"}), (Strings{"b", "z", "a"}));
}

// In lists and in folders.
TEST(TextReader, LeavesOutEmptyFilesOfAList) {
  const ScratchDirectory dir;
  put(dir / "a.txt", "a");
  put(dir / "b.txt", "");
  put(dir / "c.txt", "c");
  EXPECT_EQ(read_all({dir / "a.txt", dir / "b.txt", dir / "c.txt"}), (Strings{"a", "c"}));
  const std::string error = error_of({dir / "b.txt", dir / "b.txt"});
  EXPECT_NE(error.find("no text to read"), std::string::npos) << error;
  EXPECT_NE(error.find(dir / "b.txt"), std::string::npos) << error;
}

TEST(TextReader, ReadsCompressedFilesOfAnyLength) {
  const ScratchDirectory dir;
  std::string lines, text;
  Strings want;
  for (int i = 0; i < 30000; ++i) {
    want.push_back("document number " + std::to_string(i));
    lines += "{\"text\": \"" + want.back() + "\"}\n";
    text += want.back() + "\n";
  }
  const size_t half = lines.size() / 2;
  put(dir / "a.jsonl", lines);
  put(dir / "b.jsonl.gz", gzip(lines.substr(0, half)) + gzip(lines.substr(half)));
  put(dir / "c.jsonl.zst", zstd(lines.substr(0, half)) + zstd(lines.substr(half)));
  put(dir / "d.txt.gz", gzip(text));
  put(dir / "e.txt.zst", zstd(text));
  EXPECT_EQ(read_all({dir / "a.jsonl"}), want);
  EXPECT_EQ(read_all({dir / "b.jsonl.gz"}), want);
  EXPECT_EQ(read_all({dir / "c.jsonl.zst"}), want);
  EXPECT_EQ(read_all({dir / "d.txt.gz", dir / "e.txt.zst"}), (Strings{text, text}));
}

TEST(TextReader, SkipsWithoutChangingTheOrder) {
  const ScratchDirectory dir;
  put(dir / "a.txt", "a");
  put(dir / "b.jsonl", "{\"text\":\"1\"}\n\n{\"text\":\"2\"}\n{\"text\":\"3\"}\n");
  put(dir / "c.txt", "c");
  const Strings all = {"a", "1", "2", "3", "c"};
  for (size_t wanted = 0; wanted < all.size(); ++wanted) {
    TextReader reader(list_text_files({dir.path()}));
    TextRecord record;
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(reader.next(i == wanted ? &record : nullptr));
    }
    EXPECT_FALSE(reader.next(nullptr));
    EXPECT_EQ(reader.document(std::move(record)), all[wanted]);
  }
}

// A .json file whose first character is a bracket is one array of records, independent of line
// breaks.
TEST(TextReader, ReadsAnArrayOfRecords) {
  const ScratchDirectory dir;
  put(dir / "a.json",
      "\xEF\xBB\xBF\n [ {\"text\": \"1, ]}\"},\n{\"text\":\n\"\\\"2[\",\"b\":[{}]}\n,"
      "{\"text\":\"3\\\\\"}]\n");
  EXPECT_EQ(read_all({dir / "a.json"}), (Strings{"1, ]}", "\"2[", "3\\"}));
  put(dir / "empty.json", " [ ] \n");
  EXPECT_EQ(read_all({dir / "empty.json"}), Strings{});
  put(dir / "lines.json", "{\"text\":\"1\"}\n{\"text\":\"2\"}\n");
  EXPECT_EQ(read_all({dir / "lines.json"}), (Strings{"1", "2"}));
  // Longer than the reader's buffer, compressed, and with records that are skipped.
  std::string text = "[";
  Strings want;
  for (int i = 0; i < 3000; ++i) {
    want.push_back(std::string(static_cast<size_t>(i % 700), 'x') + std::to_string(i));
    text += concat(i == 0 ? "" : ",\n", "{\"text\": \"", want.back(), "\"}");
  }
  put(dir / "long.json.gz", gzip(text + "]"));
  EXPECT_EQ(read_all({dir / "long.json.gz"}), want);
  TextReader reader(list_text_files({dir / "long.json.gz"}));
  TextRecord record;
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(reader.next(i == 2718 ? &record : nullptr));
  EXPECT_FALSE(reader.next(nullptr));
  EXPECT_EQ(record.element, 2719);
  EXPECT_EQ(record.line, 2719);
  EXPECT_EQ(reader.document(std::move(record)), want[2718]);
}

TEST(TextReader, NamesTheRecordOfAnArray) {
  const ScratchDirectory dir;
  const auto complaint = [&](const std::string& bytes, const std::string& where,
                             const std::string& why) {
    put(dir / "a.json", bytes);
    const std::string error = error_of({dir / "a.json"});
    EXPECT_NE(error.find(concat(dir / "a.json", ":", where)), std::string::npos) << error;
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  const std::string one = R"({"text": "x"})";
  complaint("[" + one + ",\n{\"text\": oops}]", "2: record 2", "not valid JSON");
  complaint("[" + one + ", {\"text\": 5}]", "1: record 2", "not a string");
  complaint("[" + one + ", {\"txt\": \"\"}]", "1: record 2", "no key \"text\"");
  complaint("[" + one + ",\n\n[1, 2]]", "3: record 2", "is a JSON array");
  complaint("[1]", "1: record 1", "each record must be a JSON object");
  complaint("[" + one + ",\n{\"text\": \"\xFF\"}]", "2: record 2", "UTF-8");
  complaint("[" + one + ",\n{\"text\": \"y", "2: record 2", "cut off");
  complaint("[" + one + ",", "1: record 2", "cut off");
  complaint("[" + one, "1: record 1", "cut off");
  complaint("[", "1: record 1", "cut off");
  complaint("[" + one + ",]", "1: record 1", "a comma follows the last record");
  complaint("[" + one + ",," + one + "]", "1: record 1", "no record between two commas");
  complaint("[," + one + "]", "1", "no record between two commas");
  complaint("[" + one + " " + one + "]", "1: record 1", "not valid JSON");
  complaint("[" + one + "]\n" + one, "2: record 1", "text follows the end of the array");
  complaint("{\n\"text\": \"x\"}", "1", "or the file one array of them");
}

TEST(TextReader, NamesTheFileAndTheLine) {
  const ScratchDirectory dir;
  const auto complaint = [&](const std::string& name, const std::string& bytes,
                             const std::string& where, const std::string& why) {
    put(dir / name, bytes);
    const std::string error = error_of({dir / name});
    EXPECT_NE(error.find(dir / where), std::string::npos) << error;
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  complaint("empty.txt", "", "empty.txt", "no text to read");
  complaint("nul.txt", std::string("a\0b", 3), "nul.txt", "binary");
  complaint("latin1.txt", "good\nline \xE4 bad", "latin1.txt:2", "UTF-8");
  complaint("bad.jsonl", "{\"text\":\"x\"}\n{\"text\": oops}\n", "bad.jsonl:2", "not valid JSON");
  complaint("cut.jsonl", "{\"text\":\"x\"}\n\n{\"text\": \"y", "cut.jsonl:3", "not valid JSON");
  complaint("half.jsonl", "{\"text\":\"x\"}\n{\"text\": \"\\ud83d\"}\n", "half.jsonl:2",
            "half a surrogate pair");
  complaint("low.jsonl", "{\"text\": \"\\ude00 \"}\n", "low.jsonl:1", "half a surrogate pair");
  complaint("both.jsonl", "{\"text\": \"\\ud83d\\ude00 \\ud83d\"}\n", "both.jsonl:1",
            "half a surrogate pair");
  complaint("more.jsonl", "{\"text\": \"\\ud83d\", oops}\n", "more.jsonl:1", "not valid JSON");
  complaint("escaped.jsonl", "{\"text\": \"\\\\ud83d\", oops}\n", "escaped.jsonl:1",
            "not valid JSON");
  complaint("says.jsonl", "{\"text\": surrogate U+D800}\n", "says.jsonl:1", "not valid JSON");
  complaint("array.jsonl", "[1, 2]\n", "array.jsonl:1", "JSON array");
  complaint("key.jsonl", "{\"txt\":\"x\"}\n", "key.jsonl:1", "no key \"text\"");
  complaint("number.jsonl", "{\"text\":5}\n", "number.jsonl:1", "not a string");
  complaint("bytes.jsonl", "{\"text\":\"\xFF\"}\n", "bytes.jsonl:1", "UTF-8");
  complaint("no.jsonl.gz", "{\"text\":\"x\"}\n", "no.jsonl.gz", "not gzip data");
  complaint("no.jsonl.zst", "{\"text\":\"x\"}\n", "no.jsonl.zst", "not zstd data");
  const std::string text(100000, 'x');
  const std::string packed = gzip(text), frame = zstd(text);
  complaint("cut.txt.gz", packed.substr(0, packed.size() / 2), "cut.txt.gz", "truncated");
  complaint("cut.txt.zst", frame.substr(0, frame.size() - 3), "cut.txt.zst", "truncated");
}

TEST(TextReader, NamesWhatIsMissing) {
  const ScratchDirectory dir;
  EXPECT_NE(error_of({dir / "none.txt"}).find("no such file"), std::string::npos);
  EXPECT_NE(error_of({}).find("no input"), std::string::npos);
  fs::create_directory(dir / "bare");
  EXPECT_NE(error_of({dir / "bare"}).find("holds no text"), std::string::npos);
  EXPECT_NE(error_of({"/dev/null"}).find("it is a device, not a file"), std::string::npos);
}

}  // namespace
}  // namespace trireme::test_text_reader
