// Input files: regular files only, and pipes where a text is read in one pass.
//
// Opening a FIFO waits for a writer that may never come, and opening a device may have side
// effects: the file type is checked first. All errors are InputErrors that name the path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace trireme {

// Throws "cannot read PATH: it is a FIFO, not a file" if stat() reports a directory, FIFO, socket
// or device. No effect for a regular file, or if stat() fails: open() then gives the reason.
void require_regular_file(const std::string& path);
// The same, but accepts pipes that a shell passes to a program: /dev/stdin of a pipeline, and
// <(command). A FIFO with a name in a directory is refused.
void require_file_or_pipe(const std::string& path);

// Whether a file is present; require_regular_file() applies to any other entry. For optional files
// of a directory: an entry of another type does not count as absent.
bool is_input_file(const std::string& path);

// Error of these functions for a mode of stat().
[[noreturn]] void fail_kind(const std::string& path, mode_t mode);
// Error for a file that had `bytes` bytes when it was opened or listed, and is shorter now.
[[noreturn]] void fail_shrunk(const std::string& path, int64_t bytes);

// Read-only descriptor of a regular file, opened without waiting; FileError "cannot ACTION PATH:
// ..." on failure.
int open_regular_file(const std::string& path, const char* action = "open");
// First `bytes` bytes of an open file; fail_shrunk() if it ends before.
std::string read_exactly(int descriptor, int64_t bytes, const std::string& path);

}  // namespace trireme
