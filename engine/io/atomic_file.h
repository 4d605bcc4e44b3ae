// Files that are whole or absent.
//
// A file is written under "<path>.tmp" beside its final name, fsynced, renamed, and its directory
// fsynced: after a crash, a kill or a full disk the final name holds the old contents or the new
// ones, never a part. What a killed process leaves under "<path>.tmp" is overwritten by the next
// writer; two writers of one path at the same time are refused (advisory lock).
//
// Whatever the system refuses (no space, quota, permissions, read-only file system, file too large)
// becomes one InputError that names the path, the bytes still needed and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/io/checksum.h"

namespace trireme {

class AtomicFile {
 public:
  // Creates "<path>.tmp". expected_bytes: the final size if known, checked against the free space
  // at once (so that a full disk is found before hours of writing), and named by later errors.
  explicit AtomicFile(std::string path, int64_t expected_bytes = 0);
  ~AtomicFile();  // without commit(): removes the temporary
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Small pieces are gathered in a buffer of 64 KiB, large ones go straight to the system.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view characters);
  // Makes what was written durable under the temporary name: whatever a full disk can refuse is refused
  // here. For files that replace a pair together; commit() does it too.
  void sync();
  // Makes it durable under its final name. Nothing may be written afterwards.
  void commit();

  int64_t size() const { return size_; }                   // bytes written so far
  uint64_t checksum() const { return checksum_.value(); }  // of all bytes written so far
  const std::string& path() const { return path_; }

 private:
  void flush();
  void put(std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* action, int error_number);
  void discard() noexcept;

  std::string path_, temporary_;
  int64_t expected_ = 0;
  int64_t size_ = 0;     // given to write()
  int64_t written_ = 0;  // taken by the system
  int descriptor_ = -1;
  std::string pending_;
  ChecksumStream checksum_;
};

void write_file_atomically(const std::string& path, std::string_view contents);
// The whole of a small text file; InputError when it cannot be read or is larger than max_bytes.
std::string read_small_file(const std::string& path, int64_t max_bytes = 64 << 20);

// Appends to an open file all of the bytes in one call, or nothing: what a full disk takes only in part is
// cut off again. Returns 0, or the errno of what the system refused. For records that are worth less than
// the program that writes them.
int append_whole(int descriptor, const std::string& path, std::string_view bytes);

// Makes renames and creations inside `directory` durable.
void sync_directory(const std::string& directory);
// Creates the directory and its parents; InputError naming the one that cannot be made.
void make_directories(const std::string& directory);
// Removes a directory tree or a file; absent is fine. InputError when the system refuses.
void remove_tree(const std::string& path);
// Bytes an unprivileged process can still write where `path` lies (its nearest existing parent).
int64_t free_bytes_at(const std::string& path);

// The InputError every failed system call on a file becomes, so that all messages read alike:
//   cannot <action> <path>: <reason>; <what to do>
[[noreturn]] void fail_file(const char* action, const std::string& path, int error_number,
                            int64_t bytes_needed = 0);

}  // namespace trireme
