// Identity of a run's token files, stored in its checkpoints: a resumed run must read the tokens it
// began with.
//
// For each file, the sizes of the pair and a checksum over the whole .idx and samples of the .bin.
// Independent of where the files are stored.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/io/file_identity.h"
#include "training/config/run_config.h"

namespace trireme {

struct TokenFileIdentity {
  std::string key;     // of the configuration: data.train_data_path
  std::string prefix;  // as configured
  std::string name;    // last part of the prefix, which is kept when the files move
  int64_t index_bytes = 0, data_bytes = 0;
  std::string checksum;  // 16 hex digits
};
std::string text(const TokenFileIdentity& identity);  // 4096 + 1048576 bytes, 0123456789abcdef

// Identities in the order of the configuration. Empty for a fine-tuning run, whose examples have
// another identity (CheckpointLineage). InputError if a file cannot be read. of_index: kSamples for
// a comparison between many ranks that no checkpoint stores.
std::vector<TokenFileIdentity> data_identity(const DataConfig& config,
                                             FileReading of_index = FileReading::kWhole);
Json data_identity_to_json(const std::vector<TokenFileIdentity>& files);
// Empty for the format of an earlier version.
std::vector<TokenFileIdentity> data_identity_from_json(const Json& json);

// First file of `now` that differs from the saved one at its position although it has the same
// name; returns the differences, or "".
std::string changed_file(const std::vector<TokenFileIdentity>& saved,
                         const std::vector<TokenFileIdentity>& now);

}  // namespace trireme
