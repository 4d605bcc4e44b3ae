// What may be opened as an input: regular files, and where a text is read in one pass pipes.
//
// The open of a FIFO waits for a writer that may never come, and that of a device may have effects:
// their kind is looked up before. All errors are InputErrors that name the path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace trireme {

// "cannot read PATH: it is a FIFO, not a file" for what stat() says is a directory, FIFO, socket or
// device. Nothing for a regular file, nor where stat() fails: the open gives the reason.
void require_regular_file(const std::string& path);
// The same, but pipes that a shell hands to a program are read too: /dev/stdin behind a |, and
// <(command). A FIFO with a name in a directory is refused.
void require_file_or_pipe(const std::string& path);

// Whether a file is there; require_regular_file() of what is there in its place. For files that a
// directory may lack: an entry of another kind is not taken for none.
bool is_input_file(const std::string& path);

// The error of these, for a mode of stat().
[[noreturn]] void fail_kind(const std::string& path, mode_t mode);
// A file that had `bytes` bytes when it was opened or listed, and ended before.
[[noreturn]] void fail_shrunk(const std::string& path, int64_t bytes);

// Read-only descriptor of a regular file, without waiting; FileError "cannot ACTION PATH: ..."
// where it cannot be opened.
int open_regular_file(const std::string& path, const char* action = "open");
// The first `bytes` bytes of an open file; fail_shrunk() where it ends before.
std::string read_exactly(int descriptor, int64_t bytes, const std::string& path);

}  // namespace trireme
