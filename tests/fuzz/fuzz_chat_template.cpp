// Arbitrary bytes as a chat template: refused, or it renders a conversation within its limits.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  if (trireme::find_invalid_utf8(source) != size) return 0;  // the reader of the file checks this
  try {
    const trireme::ChatTemplate chat(source);
    chat.render({{"messages", {{{"role", "user"}, {"content", "Some text, \xE2\x82\xAC"}}}}},
                {.steps = 200'000, .output = 1 << 20});
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
