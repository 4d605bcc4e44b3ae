// Arbitrary bytes as a JSON schema, a regular expression or a grammar, selected by the first byte:
// refused within the limits, or a text of allowed bytes continues until it is complete or long.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "serving/structured/compiled_grammar.h"

namespace {

std::shared_ptr<const trireme::TokenTrie> all_bytes() {
  std::vector<std::string> tokens = {""};
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  return std::make_shared<trireme::TokenTrie>(tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Kind = trireme::GrammarSource::Kind;
  static const std::shared_ptr<const trireme::TokenTrie> trie = all_bytes();
  if (size == 0) return 0;
  const Kind kind = data[0] == 's'   ? Kind::kJsonSchema
                    : data[0] == 'r' ? Kind::kRegex
                                     : Kind::kGrammar;
  std::shared_ptr<const trireme::CompiledGrammar> grammar;
  try {
    grammar = trireme::CompiledGrammar::compile(
        {kind, std::string(reinterpret_cast<const char*>(data) + 1, size - 1)}, trie,
        {.time = std::chrono::milliseconds(1000), .bytes = 64 << 20, .states = 2000});
  } catch (const trireme::InputError&) {  // refused: expected
    return 0;
  }
  constexpr int kMaxTokens = 200;
  const auto reader = grammar->begin({0}, kMaxTokens);
  std::string text;
  uint32_t choice = 1;
  for (int step = 0; step < kMaxTokens; ++step) {
    std::vector<int32_t> ids;
    for (int32_t id = 1; id <= 256; ++id)
      if ((reader->mask()[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    if (ids.empty()) break;
    choice = choice * 1664525 + 1013904223;
    const int32_t id = ids[(choice >> 16) % ids.size()];
    text += static_cast<char>(id - 1);
    const bool can_continue = reader->accept(id);
    TRIREME_CHECK(can_continue || reader->is_whole(), "a dead end behind ", text);
    if (!can_continue) break;
  }
  // A value of a schema is JSON.
  if (kind == Kind::kJsonSchema && reader->is_whole())
    TRIREME_CHECK(nlohmann::json::accept(text), "no JSON: ", text);
  return 0;
}
