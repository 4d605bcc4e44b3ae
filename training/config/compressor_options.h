// Keys of a compressor and its options, which several sections of the run configuration have.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "parallel/outer/compressors/compressors.h"
#include "training/config/run_config.h"

namespace trireme {

// Adds "method" (what: meaning, in front of the methods' summaries), "bits", "ratio", "rank",
// "block", "error_feedback" and "min_bytes" to the section.
void add_compressor_keys(Schema& schema, const std::string& section, const std::string& what);

// Reads these keys. Returns the row of the method; nullptr: none.
const CompressorRow* read_compressor(const ConfigValues& values, const std::string& section,
                                     CompressionConfig& config, ConfigReport& report);

// Refuses what the method does not work with. The layout must have been read.
void check_compressor_layout(const ConfigValues& values, const std::string& section,
                             const RunConfig& config, const CompressionConfig& compression,
                             ConfigReport& report);

// Method and its options, for the log: "quantize (bits 8)".
std::string describe_compressor(const CompressionConfig& config);

// Resolved keys: those that the method uses.
Json compressor_to_json(const CompressionConfig& config);

}  // namespace trireme
