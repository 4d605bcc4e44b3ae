// Parser of --max-shard-size, an option of commands that write HuggingFace directories.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Returns the number of bytes: "5GB", "512MiB", "100000" (at most 9 digits). InputError if the text
// is not such a size or is 0.
int64_t size_of_text(const std::string& size);

}  // namespace trireme
