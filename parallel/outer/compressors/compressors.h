// Registry of compressors by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/outer/compression_config.h"
#include "parallel/outer/compressors/compressor.h"

namespace trireme {

// One method. The defaults of its options are valid.
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
