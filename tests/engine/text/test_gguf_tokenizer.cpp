// Tokenizers in GGUF files: the same ids as the tokenizer.json or .model they were written from, in llama.cpp's own
// words too.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/text/chat_template.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/sentencepiece.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test {
namespace {

nlohmann::json golden(const std::string& name) {
  return read_json_file<nlohmann::json>(
      concat(TRIREME_SOURCE_DIR, "/tests/golden/tokenizers/", name, ".json"));
}

std::string write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string text_of(const nlohmann::json& tokenizer) {
  return tokenizer.is_string() ? tokenizer.get<std::string>() : tokenizer.dump();
}

std::unique_ptr<Tokenizer> through_gguf(const std::string& path, const GgufMetadata& words) {
  GgufWriter(path, words, {}).commit();
  return load_tokenizer(path);
}

void expect_same(const Tokenizer& a, const Tokenizer& b, const std::vector<std::string>& texts) {
  EXPECT_EQ(a.bos_id(), b.bos_id());
  EXPECT_EQ(a.eod_id(), b.eod_id());
  for (const std::string& text : texts)
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = special};
      const std::vector<int32_t> ids = a.encode(text, options);
      ASSERT_EQ(ids, b.encode(text, options)) << text;
      EXPECT_EQ(a.decode(ids), b.decode(ids)) << text;
    }
}

TEST(GgufTokenizer, ByteLevelInBothForms) {
  for (const char* name : {"gpt2", "llama3", "qwen2"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    const nlohmann::json data = golden(name);
    const std::string json = write_file(dir / "tokenizer.json", text_of(data["tokenizer"]));
    std::vector<std::string> texts;
    for (const auto& one : data["cases"]) texts.push_back(one["text"].get<std::string>());
    ASSERT_GT(texts.size(), 20U);
    const auto expected = load_tokenizer(json);
    GgufMetadata words = gguf_tokenizer_metadata(json, expected->vocab_size());
    EXPECT_TRUE(words.contains("tokenizer.ggml.merges"));
    expect_same(*expected, *through_gguf(dir / "whole.gguf", words), texts);
    words.erase("tokenizer.huggingface.json");
    expect_same(*expected, *through_gguf(dir / "words.gguf", words), texts);
  }
}

TEST(GgufTokenizer, SentencePiece) {
  const ScratchDirectory dir;
  int line = 0;
  const std::string model = train_sentencepiece({.vocab_size = 320}, [&](std::string& sentence) {
    sentence = concat("the small tokenizer learns word number ", line % 17, " again and again");
    return ++line < 200;
  });
  const std::string path = write_file(dir / "x.model", model);
  const auto expected = load_tokenizer(path);
  const GgufMetadata words = gguf_tokenizer_metadata(path, expected->vocab_size());
  ASSERT_TRUE(words.contains("tokenizer.ggml.scores"));
  expect_same(*expected, *through_gguf(dir / "x.gguf", words),
              {"", "the small word", " again  and", "unseen \xC3\xA9\xE4\xB8\xAD\n"});
}

TEST(GgufTokenizer, CarriesTheChatTemplate) {
  const ScratchDirectory dir;
  const std::string json = write_file(dir / "tokenizer.json", text_of(golden("gpt2")["tokenizer"]));
  const auto words = [&] { return gguf_tokenizer_metadata(json, 0); };
  EXPECT_FALSE(words().contains(kGgufChatTemplate));
  write_file(dir / "chat_template.jinja", "{{ messages[0].content }}");
  GgufWriter(dir / "x.gguf", words(), {}).commit();
  EXPECT_EQ(chat_template_of(dir / "x.gguf"), "{{ messages[0].content }}");
  // From one such file to another.
  EXPECT_TRUE(gguf_tokenizer_metadata(dir / "x.gguf", 0).contains(kGgufChatTemplate));
  GgufWriter(dir / "y.gguf", {}, {}).commit();
  EXPECT_EQ(find_chat_template(dir / "y.gguf"), "");
}

TEST(GgufTokenizer, FilledUpToTheTableAndUnknownKinds) {
  const ScratchDirectory dir;
  const std::string json =
      write_file(dir / "tokenizer.json", golden("gpt2")["tokenizer"].is_string()
                                             ? golden("gpt2")["tokenizer"].get<std::string>()
                                             : golden("gpt2")["tokenizer"].dump());
  const int64_t size = load_tokenizer(json)->vocab_size() + 9;
  GgufMetadata words = gguf_tokenizer_metadata(json, size);
  EXPECT_EQ(std::ssize(std::get<std::vector<std::string>>(words["tokenizer.ggml.tokens"])), size);
  words.erase("tokenizer.huggingface.json");
  words["tokenizer.ggml.pre"] = std::string("another");
  EXPECT_THROW(through_gguf(dir / "a.gguf", words), InputError);
  words["tokenizer.ggml.model"] = std::string("bert");
  EXPECT_THROW(through_gguf(dir / "b.gguf", words), InputError);
  words["tokenizer.ggml.pre"] = std::string("gpt-2");
  words["tokenizer.ggml.model"] = std::string("gpt2");
  words["tokenizer.ggml.eos_token_id"] = size;
  EXPECT_THROW(through_gguf(dir / "c.gguf", words), InputError);
  words["tokenizer.ggml.eos_token_id"] = int64_t{0};
  EXPECT_NO_THROW(through_gguf(dir / "d.gguf", words));
  std::get<std::vector<std::string>>(words["tokenizer.ggml.tokens"])[3] = "\xC3!";  // no UTF-8
  EXPECT_THROW(through_gguf(dir / "e.gguf", words), InputError);
  EXPECT_TRUE(gguf_tokenizer_metadata("byte", 300).empty());
}

}  // namespace
}  // namespace trireme::test
