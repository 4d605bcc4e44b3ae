// Values of --max-shard-size, for commands that write HuggingFace directories.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Bytes of "5GB", "512MiB", "100000". InputError for anything else.
int64_t size_of_text(const std::string& size);

}  // namespace trireme
