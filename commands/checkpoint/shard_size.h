// Parser of --max-shard-size, an option of commands that write HuggingFace directories.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Number of bytes for "5GB", "512MiB" or "100000". InputError if the text is not a size.
int64_t size_of_text(const std::string& size);

}  // namespace trireme
