// Identity of a run's token files, stored in its checkpoints: a resumed run must read the same
// tokens.
//
// The identity of a file is the sizes of its .idx and .bin, and a checksum over the whole .idx and
// samples of the .bin. It does not depend on the folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/io/file_identity.h"
#include "training/config/run_config.h"

namespace trireme {

struct TokenFileIdentity {
  std::string key;     // configuration key, such as data.train_data_path
  std::string prefix;  // as configured; not stored: empty if read from a checkpoint
  std::string name;    // last part of the prefix: the same after the files are moved
  int64_t index_bytes = 0, data_bytes = 0;
  std::string checksum;  // 16 hex digits
};
// "4096 + 1048576 bytes, checksum 0123456789abcdef"
std::string text(const TokenFileIdentity& identity);

// Identities of all token files, in the order of the configuration. Empty for a fine-tuning run,
// whose examples have another identity (CheckpointLineage). InputError if a file cannot be read.
// of_index: how much of the .idx enters the checksum; kSamples is for comparing ranks at start-up,
// kWhole for checkpoints.
std::vector<TokenFileIdentity> data_identity(const DataConfig& config,
                                             FileReading of_index = FileReading::kWhole);
Json data_identity_to_json(const std::vector<TokenFileIdentity>& files);
// Empty if the checkpoint is from a version that did not store identities.
std::vector<TokenFileIdentity> data_identity_from_json(const Json& json);

// Description of the first file of `now` whose tokens differ from the saved file with the same key,
// position and name; "" if there is none.
std::string changed_file(const std::vector<TokenFileIdentity>& saved,
                         const std::vector<TokenFileIdentity>& now);

}  // namespace trireme
