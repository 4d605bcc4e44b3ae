// Arbitrary bytes as a tokenizer.json, and as text for a valid one: refused, or it tokenizes.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/tokenizer_json.h"

namespace {

// All steps before the merges: Unicode normal forms, a regular expression, the byte alphabet.
std::unique_ptr<trireme::Tokenizer> good_tokenizer() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof token, "<0x%02X>", static_cast<unsigned>(byte));
    vocabulary[token] = byte;
  }
  vocabulary["ab"] = 256;
  vocabulary["a"] = 257;
  vocabulary["b"] = 258;
  const nlohmann::json json = {
      {"normalizer", {{"type", "NFKC"}}},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"decoder", {{"type", "ByteFallback"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b"}}, {"byte_fallback", true}}}};
  return trireme::parse_tokenizer_json(json.dump(), "", "good.json");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto good = good_tokenizer();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = trireme::parse_tokenizer_json(input, "", "fuzzed.json");
    tokenizer->decode(
        tokenizer->encode("Some text, \xE2\x82\xAC\n  and <s> more of it.", {true, true}));
  } catch (const trireme::InputError&) {  // refused: expected
  }
  if (trireme::find_invalid_utf8(input) == size) good->decode(good->encode(input));
  return 0;
}
