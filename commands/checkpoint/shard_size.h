// Parser of --max-shard-size, an option of commands that write HuggingFace directories.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Returns the number of bytes: "5GB", "512MiB", "100000". Units: B, KB, MB, GB (powers of 1000),
// KiB, MiB, GiB (powers of 1024). InputError if the text is not such a size, is 0, or does not fit
// in 63 bits.
int64_t parse_shard_size(const std::string& size);

}  // namespace trireme
