// Any bytes as a tokenizer.json, and as a text for a good one: refused, or it tokenises.
#include <cstdint>
#include <string_view>

#include "engine/core/error.h"
#include "engine/text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = trireme::parse_tokenizer_json(input, "", "fuzzed.json");
    tokenizer->decode(
        tokenizer->encode("Some text, \xE2\x82\xAC\n  and <s> more of it.", {true, true}));
  } catch (const trireme::Error&) {  // refused: good
  }
  return 0;
}
