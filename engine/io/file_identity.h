// Identity of a file's contents, independent of its name.
#pragma once

#include <string>

#include "engine/io/checksum.h"

namespace trireme {

// kWhole: every byte. kSamples: the first MiB and 64 samples of 4 KiB spread evenly over the file,
// for files too large to be read in full; a file of at most 1 MiB is read in full.
enum class FileReading { kWhole, kSamples };

// Adds a file's size and contents to a checksum; returns the size. Throws InputError if the file
// cannot be read.
int64_t add_file_identity(ChecksumStream& sum, const std::string& file, FileReading reading);

}  // namespace trireme
