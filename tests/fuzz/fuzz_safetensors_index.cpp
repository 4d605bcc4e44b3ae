// Arbitrary bytes as model.safetensors.index.json next to two valid shards: refused, or it matches
// the shards, and every tensor can be read.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_directory.h"
#include "tests/support/scratch_directory.h"

namespace {

// a and b in the first shard, c in the second.
struct Shards {
  Shards() {
    const auto write = [&](const char* name, const std::vector<std::string>& tensors) {
      std::vector<trireme::SafetensorsSpec> specs;
      for (const std::string& t : tensors) specs.push_back({t, trireme::DType::kF32, {2}});
      trireme::SafetensorsWriter writer(dir / name, specs);
      const std::vector<float> values(2 * tensors.size(), 1.5f);
      writer.write(std::as_bytes(std::span(values)));
      writer.commit();
    };
    write("1.safetensors", {"a", "b"});
    write("2.safetensors", {"c"});
  }
  trireme::test::ScratchDirectory dir;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Shards shards;
  std::ofstream(shards.dir / trireme::kSafetensorsIndex, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const trireme::SafetensorsDirectory files(shards.dir.path());
    TRIREME_CHECK(!files.tensors().empty() && files.files().size() <= 2, "other files were read");
    for (const trireme::SourceTensor& tensor : files.tensors()) {
      float values[2] = {};
      files.read(tensor, 0, trireme::Tensor(values, trireme::DType::kF32, {2}));
      TRIREME_CHECK(values[0] == 1.5f && values[1] == 1.5f, tensor.name, " is ", values[0]);
    }
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
