// Arbitrary bytes as a checkpoint's manifest, sealed with their correct checksum so that they are
// parsed: refused, or the content can be written and read again.
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/io/checkpoint_manifest.h"
#include "engine/io/checksum.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  const uint64_t checksum = trireme::checksum(std::as_bytes(std::span(body)));
  const std::string sealed = trireme::concat(body, ",\n\"manifest_checksum\": \"",
                                             trireme::checksum_text(checksum), "\"\n}\n");
  try {
    const auto manifest = trireme::manifest_from_text(sealed, "fuzzed");
    const std::string once = trireme::manifest_to_text(manifest);
    const std::string twice =
        trireme::manifest_to_text(trireme::manifest_from_text(once, "written"));
    TRIREME_CHECK(once == twice, "a manifest changes as it is written again");
  } catch (const trireme::InputError& error) {
    // Refused: expected, unless it refuses what it wrote itself.
    TRIREME_CHECK(!std::string_view(error.what()).starts_with("written"), error.what());
  }
  return 0;
}
