// Cost of token masks: generates random texts of allowed tokens and times each step.
//
//  mask_speed TOKENIZER [IDS]     IDS: extends the vocabulary to this size with pairs of tokens
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/serving/structured/vocabulary.h"

namespace trireme::test {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> vocabulary_of(const Tokenizer& tokenizer, size_t ids) {
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t id = 1; id < tokens.size(); ++id)
    if (!tokenizer.is_control(static_cast<int32_t>(id)))
      tokenizer.append_bytes(static_cast<int32_t>(id), tokens[id]);
  tokens[kEnd].clear();
  std::mt19937_64 random(1);
  const size_t given = tokens.size();
  while (tokens.size() < ids) tokens.push_back(tokens[random() % given] + tokens[random() % given]);
  return tokens;
}

double micros(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

void measure(const char* name, const GrammarSource& source,
             const std::shared_ptr<const TokenTrie>& trie) {
  const auto begin = Clock::now();
  const auto grammar = CompiledGrammar::compile(source, trie);
  const double compiled = micros(Clock::now() - begin) / 1000;
  std::vector<double> times;
  std::mt19937_64 random(2);
  for (int text = 0; text < 60; ++text) {
    const auto reader = grammar->begin({kEnd}, kManyTokens);
    for (int step = 0; step < 200; ++step) {
      const std::vector<int32_t> ids = allowed(reader->mask(), trie->ids());
      const int32_t id = ids[random() % ids.size()];
      if (id == kEnd) break;
      const auto from = Clock::now();
      const bool goes_on = reader->accept(id);
      times.push_back(micros(Clock::now() - from));
      if (!goes_on) break;
    }
  }
  std::ranges::sort(times);
  std::printf(
      "%-22s compiled in %7.1f ms, %6zu masks: median %8.1f us, P99 %8.1f us, most %8.1f us\n",
      name, compiled, times.size(), times[times.size() / 2], times[times.size() * 99 / 100],
      times.back());
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  using namespace trireme;
  using Kind = GrammarSource::Kind;
  if (argc < 2) {
    std::puts("mask_speed TOKENIZER [IDS]");
    return 2;
  }
  const auto tokenizer = load_tokenizer(argv[1]);
  const auto tokens =
      test::vocabulary_of(*tokenizer, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0);
  const auto begin = test::Clock::now();
  const auto trie = test::trie_of(tokens);
  std::printf("%s: %zu tokens, %d nodes, built in %.1f ms\n", argv[1], tokens.size(), trie->nodes(),
              test::micros(test::Clock::now() - begin) / 1000);
  test::measure("json_object", {Kind::kJsonObject}, trie);
  test::measure("schema",
                {Kind::kJsonSchema,
                 R"({"type":"object","properties":{"name":{"type":"string"},)"
                 R"("age":{"type":"integer","minimum":0,"maximum":150},)"
                 R"("tags":{"type":"array","items":{"type":"string","maxLength":30}},)"
                 R"("address":{"type":"object","properties":{"city":{"type":"string"},)"
                 R"("zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["city","zip"]}},)"
                 R"("required":["name","age","tags","address"]})"},
                trie);
  test::measure("maxLength 5000", {Kind::kJsonSchema, R"({"type":"string","maxLength":5000})"},
                trie);
  test::measure("regex", {Kind::kRegex, R"([A-Z][a-z]+( [A-Z][a-z]+)*: \d{1,3}\.\d\d)"}, trie);
  test::measure("choice", {Kind::kChoice, "", {"yes", "no", "perhaps"}}, trie);
  return 0;
}
