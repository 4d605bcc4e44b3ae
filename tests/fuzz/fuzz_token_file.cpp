// Arbitrary bytes as a token file pair: the first byte gives the number of bytes of the .bin, the
// rest is the .idx. Opening either throws InputError or yields a file whose every token can be
// read.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/token_file.h"
#include "tests/support/scratch_directory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trireme::test::ScratchDirectory dir;
  if (size == 0) return 0;
  const size_t bin = std::min<size_t>(data[0], size - 1);
  const auto* bytes = reinterpret_cast<const char*>(data) + 1;
  std::ofstream(dir / "x.bin", std::ios::binary).write(bytes, static_cast<std::streamsize>(bin));
  std::ofstream(dir / "x.idx", std::ios::binary)
      .write(bytes + bin, static_cast<std::streamsize>(size - 1 - bin));
  try {
    const trireme::TokenFile file(dir / "x");
    std::vector<int32_t> tokens(static_cast<size_t>(file.num_tokens()));
    for (int64_t s = 0; s < file.num_sequences(); ++s) {
      file.copy_tokens(file.sequence_begin(s), file.sequence_length(s), tokens.data());
    }
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
