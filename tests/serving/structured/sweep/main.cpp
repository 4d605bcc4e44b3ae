// Random texts of allowed tokens for many generated schemas: every text must be valid.
//
//  schema_sweep [--schemas 1000] [--seed 1] [--write FILE]
//                                 FILE: a line {"schema", "text"} for each
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/serving/structured/sweep/schema_source.h"
#include "tests/serving/structured/vocabulary.h"

namespace trireme::test {
namespace {

constexpr int kMaxTokens = 6000, kWandering = 150;

// Bytes, and tokens that end and start several parts at once.
std::vector<std::string> tokens() {
  return byte_tokens({"\"}",   "\",",    "\": ",  "\":",   "{\"",  "[{\"", "}}",   "}]",
                      "],",    "},",     "true",  "false", "null", "name", "na",   "word ",
                      "\",\"", "\": \"", "\\u00", "é",     "ab",   "日",   "日本", "\xF0\x9F",
                      "\n  ",  " \"",    "00",    "12",    ", ",   "-1",   ".5",   "e+"});
}

// Random tokens for a while, then tokens that close something where allowed.
int32_t choose(std::span<const uint32_t> mask, int64_t ids, int step, std::mt19937_64& random) {
  if (allows(mask, kEnd) && (step > kWandering || random() % 2 == 0)) return kEnd;
  const std::vector<int32_t> all = allowed(mask, ids);
  if (step > kWandering)
    for (const char c : std::string_view("}]\"n0"))
      if (allows(mask, 1 + c) && random() % 8 != 0) return 1 + c;
  return all[random() % all.size()];
}

struct Sweep {
  int texts = 0, refused = 0, unfinished = 0, invalid = 0;
};

bool write_text(const CompiledGrammar& grammar, const std::vector<std::string>& vocabulary,
                std::mt19937_64& random, std::string& text) {
  const auto reader = grammar.begin({kEnd}, kMaxTokens);
  for (int step = 0; step < kMaxTokens; ++step) {
    const int32_t id = choose(reader->mask(), std::ssize(vocabulary), step, random);
    if (id == kEnd) return true;
    text += vocabulary[static_cast<size_t>(id)];
    if (!reader->accept(id)) return reader->is_whole();
  }
  return false;
}

void check(const Json& schema, const std::string& text, Sweep& sweep) {
  ++sweep.texts;
  const Json value = Json::parse(text, nullptr, false);
  std::string why = value.is_discarded() ? "not JSON" : invalid_part(value, schema, schema);
  if (why.empty()) return;
  ++sweep.invalid;
  std::printf("invalid (%s): %s\n  of %s\n", why.c_str(), text.c_str(), schema.dump().c_str());
}

int run(int schemas, uint64_t seed, const char* file) {
  const std::vector<std::string> vocabulary = tokens();
  const std::shared_ptr<const TokenTrie> trie = trie_of(vocabulary);
  std::ofstream out;
  if (file != nullptr) out.open(file);
  SchemaSource source(seed);
  std::mt19937_64 random(seed);
  Sweep sweep;
  for (int i = 0; i < schemas; ++i) {
    const Json schema = source.next();
    std::shared_ptr<const CompiledGrammar> grammar;
    try {
      grammar = CompiledGrammar::compile({GrammarSource::Kind::kJsonSchema, schema.dump()}, trie);
    } catch (const InputError& error) {
      ++sweep.refused;
      std::printf("refused: %s: %s\n", schema.dump().c_str(), error.what());
      continue;
    }
    std::string text;
    if (!write_text(*grammar, vocabulary, random, text)) {
      ++sweep.unfinished;
      continue;
    }
    check(schema, text, sweep);
    if (out) out << Json{{"schema", schema}, {"text", text}}.dump() << "\n";
  }
  std::printf("%d schemas: %d texts, %d of them invalid, %d unfinished, %d schemas refused\n",
              schemas, sweep.texts, sweep.invalid, sweep.unfinished, sweep.refused);
  // Refused or unfinished schemas prove nothing.
  return sweep.invalid == 0 && sweep.texts == schemas ? 0 : 1;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  int schemas = 1000;
  uint64_t seed = 1;
  const char* file = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--schemas") == 0) schemas = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--write") == 0) file = argv[i + 1];
  }
  return trireme::test::run(schemas, seed, file);
}
