// Arbitrary bytes as a GGUF file. Reading throws InputError or yields tensors inside the file whose
// every element can be read, and metadata that are converted to a tokenizer and a configuration, or
// refused.
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/gguf.h"
#include "engine/text/gguf_tokenizer.h"
#include "tests/support/scratch_directory.h"

namespace {

void read_every_element(const trireme::GgufFile& file) {
  std::vector<float> values;
  for (const trireme::SourceTensor& tensor : file.tensors()) {
    const int64_t n = tensor.numel();
    TRIREME_CHECK(n > 0 && n <= 1 << 24, "a tensor of ", n, " elements in a small file");
    values.resize(static_cast<size_t>(n));
    try {
      file.read(tensor, 0, trireme::Tensor(values.data(), trireme::DType::kF32, {n}));
      file.read(tensor, n / 2, trireme::Tensor(values.data(), trireme::DType::kF32, {n - n / 2}));
    } catch (const trireme::InputError&) {  // a type without float values
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trireme::test::ScratchDirectory dir;
  const std::string path = dir / "x.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    read_every_element(trireme::GgufFile(path));
    trireme::load_gguf_tokenizer(path)->encode("some text");
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
