// Registry of compressors by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/outer/compressors/compressor.h"

namespace trireme {

// Options of all methods; each uses some of them (CompressorRow::options).
struct CompressionOptions {
  std::string method = "quantize";
  int bits = 8;         // of an element: 8, 4 or 1
  double ratio = 0.01;  // of the elements that are sent, in (0, 1]
  int rank = 4;         // of the matrices that are sent, 1 to kMaxPowerSgdRank
  int64_t block = 0;    // elements of a row; 0: the default of the method
};

struct CompressorRow {
  const char* method;
  const char* options;  // names of those that it uses, separated by ", "
  const char* summary;  // line of the configuration reference
  std::unique_ptr<Compressor> (*make)(const CompressionOptions& options);
  // Appends a line per option out of range.
  void (*check)(const CompressionOptions& options, std::vector<std::string>& problems);
};
std::span<const CompressorRow> compressors();

// One line per option out of range: its name, its value and what is allowed.
std::vector<std::string> compression_problems(const CompressionOptions& options);
// InputError with all problems.
std::unique_ptr<Compressor> make_compressor(const CompressionOptions& options);

}  // namespace trireme
