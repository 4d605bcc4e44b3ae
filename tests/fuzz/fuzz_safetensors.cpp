// A header of arbitrary bytes before 0 to 254 bytes of data (number given by the first byte; 255:
// the other bytes are the whole file). Reading either throws InputError or yields tensors that
// cover the data without gaps and whose every byte can be read.
#include <cstdint>
#include <fstream>
#include <string>

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "tests/support/scratch_directory.h"

namespace {

std::string file_of(const uint8_t* data, size_t size) {
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 255) return rest;
  std::string file;
  for (size_t i = 0; i < 8; ++i) file.push_back(static_cast<char>(rest.size() >> (8 * i) & 0xff));
  return file + rest + std::string(data[0], '\x5a');
}

void read_every_byte(const std::string& path) {
  const trireme::SafetensorsReader reader(path);
  uint64_t sum = 0;
  for (const trireme::SafetensorsEntry& entry : reader.entries()) {
    for (const std::byte b : reader.bytes(entry)) sum += static_cast<uint64_t>(b);
    try {
      const trireme::ConstTensor tensor = reader.tensor(entry.name);
      TRIREME_CHECK(tensor.numel() == 0 || tensor.raw() != nullptr, "a tensor without data");
    } catch (const trireme::InputError&) {  // unsupported dtype or rank
    }
  }
  volatile uint64_t used = sum;
  (void)used;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trireme::test::ScratchDirectory dir;
  if (size == 0) return 0;
  const std::string file = file_of(data, size);
  try {
    const auto header = trireme::parse_safetensors_header(std::as_bytes(std::span(file)),
                                                          std::ssize(file), "fuzzed");
    int64_t end = 0;
    for (const trireme::SafetensorsEntry& entry : header.entries) {
      TRIREME_CHECK(entry.begin == end && entry.end >= entry.begin, "a gap before ", entry.name);
      end = entry.end;
    }
    TRIREME_CHECK(header.data_start + end == std::ssize(file), "tensors end at ", end);
    std::ofstream(dir / "x.safetensors", std::ios::binary)
        .write(file.data(), static_cast<std::streamsize>(file.size()));
    read_every_byte(dir / "x.safetensors");
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
