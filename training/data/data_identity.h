// Identity of a run's token files, which its checkpoints keep: a resumed run must read the tokens
// it began with.
//
// Of each file the sizes of the pair and a checksum over its whole .idx and samples of its .bin. It
// does not depend on where the files lie.
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
  std::string name;    // its last part, which stays when the files move
  int64_t index_bytes = 0, data_bytes = 0;
  std::string checksum;  // 16 hex digits
};
std::string text(const TokenFileIdentity& identity);  // 4096 + 1048576 bytes, 0123456789abcdef

// In the order of the configuration; empty for a fine-tuning run, whose examples have an identity
// of their own (CheckpointLineage). InputError where a file cannot be read.
// of_index: kSamples for what many ranks compare and no checkpoint keeps.
std::vector<TokenFileIdentity> data_identity(const DataConfig& config,
                                             FileReading of_index = FileReading::kWhole);
Json data_identity_to_json(const std::vector<TokenFileIdentity>& files);
// Empty for what an earlier version wrote.
std::vector<TokenFileIdentity> data_identity_from_json(const Json& json);

// The first of `now` that is another file under the same name than the one saved in its place; ""
// where there is none, else what differs.
std::string changed_file(const std::vector<TokenFileIdentity>& saved,
                         const std::vector<TokenFileIdentity>& now);

}  // namespace trireme
