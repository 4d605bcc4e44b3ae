// Identity of a file's contents, whatever the file is called.
#pragma once

#include <string>

#include "engine/io/checksum.h"

namespace trireme {

// kSamples: the first MiB and 64 samples of the rest, for files too large to be read for this.
enum class FileReading { kWhole, kSamples };

// Adds a file's size and contents to a checksum. InputError where it cannot be read. Returns its
// size.
int64_t add_file_identity(ChecksumStream& sum, const std::string& file, FileReading reading);

}  // namespace trireme
