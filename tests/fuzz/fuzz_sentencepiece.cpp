// Arbitrary bytes as a SentencePiece model: refused, or it tokenizes.
#include <cstdint>
#include <string_view>

#include "engine/core/error.h"
#include "engine/text/sentencepiece.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view model(reinterpret_cast<const char*>(data), size);
    const auto tokenizer = trireme::parse_sentencepiece(model, "fuzzed.model");
    tokenizer->decode(tokenizer->encode("Some text, \xE2\x82\xAC\n  and more of it."));
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
