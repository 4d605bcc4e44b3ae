#include "engine/io/file_identity.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/input_file.h"

namespace trireme {
namespace {

constexpr int64_t kBeginningBytes = 1 << 20, kSampleBytes = 4096, kFileSamples = 64;

void add_bytes(ChecksumStream& sum, const std::string& file, std::ifstream& in, int64_t begin,
               int64_t end) {
  std::vector<char> bytes(static_cast<size_t>(std::min(end - begin, kBeginningBytes)));
  in.seekg(begin);
  while (begin < end && in) {
    in.read(bytes.data(), std::min(end - begin, std::ssize(bytes)));
    sum.update(std::as_bytes(std::span(bytes.data(), static_cast<size_t>(in.gcount()))));
    begin += in.gcount();
  }
  if (begin < end)
    fail_input("cannot read ", file, ": no data at byte ", begin,
               "; copy the file again, or check its disk");
}

}  // namespace

int64_t add_file_identity(ChecksumStream& sum, const std::string& file, FileReading reading) {
  require_regular_file(file);
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file, error));
  std::ifstream in(file, std::ios::binary);
  if (error || !in) fail_input("cannot read ", file);
  sum.update(std::as_bytes(std::span(&size, 1)));
  const bool whole = reading == FileReading::kWhole || size <= kBeginningBytes;
  add_bytes(sum, file, in, 0, whole ? size : kBeginningBytes);
  if (whole) return size;
  for (int64_t i = 1; i <= kFileSamples; ++i) {
    const int64_t begin = (size - kSampleBytes) / kFileSamples * i;
    add_bytes(sum, file, in, begin, begin + kSampleBytes);
  }
  return size;
}

}  // namespace trireme
