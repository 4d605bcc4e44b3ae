// Error of a failed system call on a file, with its errno for callers that depend on the cause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/core/error.h"

namespace trireme {

// Bytes an unprivileged process can still write on the file system of `path`, or of its nearest
// existing parent; nullopt if the system does not report them.
std::optional<int64_t> free_bytes_at(const std::string& path);

// Throws FileError for a failed system call on a file, with one form of message:
//   cannot <action> <path>: <reason>; <what to do>
// bytes_needed: bytes still to write; 0: unknown. The message gives them and the free space if lack
// of space may be the cause.
[[noreturn]] void fail_file(const char* action, const std::string& path, int error_number,
                            int64_t bytes_needed = 0);

// Error thrown by fail_file().
class FileError : public InputError {
 public:
  FileError(const std::string& what, std::string path, int error_number)
      : InputError(what), path_(std::move(path)), error_number_(error_number) {}
  const std::string& path() const { return path_; }
  int error_number() const { return error_number_; }

 private:
  std::string path_;
  int error_number_;
};

// Returns whether `path` exists. Throws FileError if stat() fails for any reason but an absent name
// (a permission, an I/O error, a parent that is a file), and for a link whose target is absent: it
// may be on a file system that is not mounted yet.
bool is_present(const std::string& path);

}  // namespace trireme
