// Atomic file writes: a file is complete or absent.
//
// The content is written to "<path>.tmp" next to the final name, fsynced and renamed, and the
// directory is fsynced: after a crash, a kill or a full disk the final name has all of the old or
// all of the new contents. A "<path>.tmp" left by a killed process is overwritten by the next
// writer; a second concurrent writer of a path is refused (advisory lock).
//
// A file that takes long to write can be resumable: after an error, a kill or a full disk, the
// partial file stays at "<path>.tmp", with "<path>.journal" (resume_journal.h), and the next writer
// of the same content resumes it: kept() bytes are in place, and skip() passes over content that
// need not be produced again.
//
// Any refusal by the system (no space, quota, permissions, read-only file system, file too large)
// throws FileError, an InputError that names the path, the cause, the bytes still needed if space
// is short, and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/io/checksum.h"
#include "engine/io/file_error.h"
#include "engine/io/resume_journal.h"

namespace trireme {

class AtomicFile {
 public:
  // Creates "<path>.tmp". expected_bytes: the final size, 0 if unknown; checked against the free
  // space at once, so that a full disk is detected before hours of writing. resume_as: text that
  // determines the content; makes the file resumable; empty: not resumable.
  explicit AtomicFile(std::string path, int64_t expected_bytes = 0,
                      const std::string& resume_as = "");
  // Without commit(): removes the temporary file, unless it is resumable and has a valid prefix.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Small pieces are collected in a buffer of 64 KiB; larger ones are passed to the system
  // directly. Writeback is started after every 8 MiB, so that commit() finds little left to do.
  // Bytes already in place (kept()) are skipped.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view characters);
  // Makes the bytes written durable under the temporary name. A full disk is detected here at the
  // latest. To replace two files together, call sync() on both before the first commit().
  void sync();
  // Calls sync() and makes the file durable under its final name. Nothing may be written after it.
  void commit();

  // Bytes of an earlier partial file that are in place.
  int64_t kept() const { return journal_ == nullptr ? 0 : journal_->kept(); }
  // Whether an earlier partial file had other content and was discarded.
  bool discarded_partial() const { return journal_ != nullptr && journal_->discarded_partial(); }
  // Skips the next `bytes` bytes, which must be kept, in place of writing them.
  void skip(int64_t bytes);
  // Reads bytes of the earlier partial file from `offset` on; all must be kept.
  void read_kept(int64_t offset, std::span<std::byte> destination) const;

  int64_t size() const { return size_; }  // bytes written or skipped so far
  // Checksum of all bytes written so far; size() must be at least kept().
  uint64_t checksum() const { return checksum_.value(); }
  const std::string& path() const { return path_; }

 private:
  void open_temporary(const std::string& resume_as);
  void append(std::span<const std::byte> bytes);
  void flush();
  void put(std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* action, int error_number);
  void discard() noexcept;

  std::string path_, temporary_;
  int64_t expected_ = 0;
  int64_t size_ = 0;     // passed to write() or skipped
  int64_t written_ = 0;  // accepted by the system
  int64_t started_ = 0;  // writeback started
  int descriptor_ = -1;
  std::unique_ptr<ResumeJournal> journal_;  // resumable files only
  std::string pending_;
  ChecksumStream checksum_;
};

void write_file_atomically(const std::string& path, std::string_view contents);
// Contents of a small regular file; InputError if it cannot be read, is larger than max_bytes or is
// a Git LFS pointer.
std::string read_small_file(const std::string& path, int64_t max_bytes = 64 << 20);

// Reads destination.size() bytes at `offset` of an open file; InputError naming `path` if the file
// is shorter, FileError if it cannot be read.
void read_fully(int descriptor, int64_t offset, std::span<std::byte> destination,
                const std::string& path);

// Appends all the bytes to an open file in one write(), or none: after a partial write (full disk)
// it truncates the file to its earlier size. The descriptor's offset must be the end of the file.
// Returns 0, or the errno of the failure (ENOSPC after a partial write), for records whose loss
// must not end the program; FileError only if the truncation fails.
int append_whole(int descriptor, const std::string& path, std::string_view bytes);

// Makes renames and creations inside `directory` durable, as far as the file system can.
void sync_directory(const std::string& directory);
// Creates the directory and its parents; FileError naming `directory` if one of them cannot be
// created.
void make_directories(const std::string& directory);
// Removes a directory tree or a file, if present. FileError if the system refuses.
void remove_tree(const std::string& path);

}  // namespace trireme
