// Input files: regular files, and pipes for text that is read in one pass.
//
// Opening a FIFO waits for a writer that may never come, and opening a device may have side
// effects, hence the file type is checked first. All errors are InputErrors that name the path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace trireme {

// Throws "cannot read PATH: it is a FIFO, not a file" or the like if stat() reports a directory,
// FIFO, socket or device. No effect for a regular file, or if stat() fails: open() then gives the
// reason.
void require_regular_file(const std::string& path);
// require_regular_file() that also accepts the unnamed pipes that a shell passes to a program:
// /dev/stdin of a pipeline, and <(command). A named FIFO is refused.
void require_file_or_pipe(const std::string& path);

// Returns whether a regular file is present; false if stat() fails. For optional files of a
// directory: an entry of another type does not count as absent, but fails as in
// require_regular_file().
bool is_input_file(const std::string& path);

// Throws the error of the functions above for an st_mode of stat().
[[noreturn]] void fail_file_type(const std::string& path, mode_t mode);
// Throws the error for a file that had `bytes` bytes when it was opened or listed and is shorter
// now.
[[noreturn]] void fail_shrunk(const std::string& path, int64_t bytes);

// Opens a regular file read-only, without waiting, and returns its descriptor. Throws as
// require_regular_file() for another type, and FileError "cannot ACTION PATH: ..." if the open
// fails.
int open_regular_file(const std::string& path, const char* action = "open");
// Reads the next `bytes` bytes of an open file; fail_shrunk() if it ends before, FileError if it
// cannot be read.
std::string read_exactly(int descriptor, int64_t bytes, const std::string& path);

}  // namespace trireme
