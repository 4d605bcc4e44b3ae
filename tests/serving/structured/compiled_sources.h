// Grammar sources compiled for a byte vocabulary, for tests: accepted texts, and error messages.
#pragma once

#include <gtest/gtest.h>

#include "tests/serving/structured/vocabulary.h"

namespace trireme::test {

using Kind = GrammarSource::Kind;

inline std::shared_ptr<const CompiledGrammar> compile(Kind kind, const std::string& text) {
  static const std::shared_ptr<const TokenTrie> trie = trie_of(byte_tokens());
  return CompiledGrammar::compile({kind, text}, trie);
}

inline std::string refused(Kind kind, const std::string& text) {
  try {
    compile(kind, text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

inline void expect(Kind kind, const std::string& source, const std::vector<std::string>& good,
                   const std::vector<std::string>& bad) {
  const auto grammar = compile(kind, source);
  for (const std::string& text : good) EXPECT_TRUE(takes(*grammar, text)) << source << ": " << text;
  for (const std::string& text : bad) EXPECT_FALSE(takes(*grammar, text)) << source << ": " << text;
}

inline void expect_schema(const std::string& schema, const std::vector<std::string>& good,
                          const std::vector<std::string>& bad) {
  expect(Kind::kJsonSchema, schema, good, bad);
}

}  // namespace trireme::test
