// A whole HuggingFace directory of arbitrary bytes, possibly quantized: parts separated by lines of
// "%%" are config.json, the headers of the shards, which zeros follow, and the index if there is
// more than one shard. Opening it throws InputError or yields a model whose every tensor can be
// read, under names that map to a place.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/safetensors_directory.h"
#include "engine/observe/log.h"
#include "tests/fuzz/shard_file.h"
#include "tests/support/scratch_directory.h"
#include "transformer/families/family.h"
#include "transformer/formats/hf/hf_model.h"

namespace {

namespace fs = std::filesystem;
using trireme::test::write_shard;

void write_directory(const std::string& dir, const std::vector<std::string>& parts) {
  for (const auto& entry : fs::directory_iterator(dir)) fs::remove(entry.path());
  std::ofstream(dir + "/config.json", std::ios::binary) << parts[0];
  if (parts.size() == 2) return write_shard(dir + "/model.safetensors", parts[1]);
  for (size_t i = 1; i + 1 < parts.size() && i < 4; ++i)
    write_shard(trireme::concat(dir, "/", i, ".safetensors"), parts[i]);
  std::ofstream(dir + "/" + trireme::kSafetensorsIndex, std::ios::binary) << parts.back();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trireme::test::ScratchDirectory dir;
  trireme::set_log_level(trireme::LogLevel::kError);  // unknown keys log notes
  const auto parts =
      trireme::test::parts_of(std::string(reinterpret_cast<const char*>(data), size));
  if (parts.size() < 2) return 0;
  write_directory(dir.path(), parts);
  try {
    const trireme::HfModel model(dir.path());
    trireme::test::read_every_tensor(model.tensors());
    const auto names = trireme::parameter_names(model.config());
    TRIREME_CHECK(!model.place(model.config(), names.token_embedding).tensor.empty(), "no place");
    TRIREME_CHECK(!model.settings().empty(), "a model without settings");
  } catch (const trireme::InputError&) {  // refused: expected
  }
  return 0;
}
