// Files that are whole or absent.
//
// A file is written under "<path>.tmp" beside its final name, fsynced, renamed, and its directory
// fsynced: after a crash, a kill or a full disk the final name holds the old contents or the new
// ones, never a part. What a killed process leaves under "<path>.tmp" is overwritten by the next
// writer; two writers of one path at the same time are refused (advisory lock).
//
// A file that takes long can be resumable: what an interrupted writer of the same content left (by
// an error, a kill or a full disk) stays under "<path>.tmp", with "<path>.journal"
// (resume_journal.h), and the next one goes on with it: kept() bytes are there, and skip() passes
// over what need not be given again.
//
// Whatever the system refuses (no space, quota, permissions, read-only file system, file too large)
// becomes one InputError that names the path, the bytes still needed and what to do.
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
  // Creates "<path>.tmp". expected_bytes: the final size if known, checked against the free space
  // at once (so that a full disk is found before hours of writing), and named by later errors.
  // resume_as: all that decides about the content, as text; it makes the file resumable.
  explicit AtomicFile(std::string path, int64_t expected_bytes = 0,
                      const std::string& resume_as = "");
  // Without commit(): removes the temporary, unless it is resumable and something of it is whole.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Small pieces are gathered in a buffer of 64 KiB, large ones go straight to the system,
  // which is asked to bring them to the disk at once, so that commit() finds little left to do.
  // Bytes that are kept already are passed over.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view characters);
  // Makes what was written durable under the temporary name: whatever a full disk can refuse is
  // refused here. For files that replace a pair together; commit() does it too.
  void sync();
  // Makes it durable under its final name. Nothing may be written afterwards.
  void commit();

  int64_t kept() const { return journal_ == nullptr ? 0 : journal_->kept(); }
  // What was there was of another content, and has been given up.
  bool begun_anew() const { return journal_ != nullptr && journal_->begun_anew(); }
  // The next bytes are among those that are kept; they are not given.
  void skip(int64_t bytes);
  void read_kept(int64_t offset, std::span<std::byte> destination) const;

  int64_t size() const { return size_; }  // bytes written or skipped so far
  // Of all bytes written so far; size() is at least kept().
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
  int64_t size_ = 0;     // given to write() or skipped
  int64_t written_ = 0;  // taken by the system
  int64_t started_ = 0;  // on their way to the disk
  int descriptor_ = -1;
  std::unique_ptr<ResumeJournal> journal_;  // of a resumable file
  std::string pending_;
  ChecksumStream checksum_;
};

void write_file_atomically(const std::string& path, std::string_view contents);
// The whole of a small text file; InputError when it cannot be read or is larger than max_bytes.
std::string read_small_file(const std::string& path, int64_t max_bytes = 64 << 20);

// Reads destination.size() bytes at `offset` of an open file; InputError naming `path` where it
// ends before.
void read_fully(int descriptor, int64_t offset, std::span<std::byte> destination,
                const std::string& path);

// Appends to an open file all of the bytes in one call, or nothing: what a full disk takes only in
// part is cut off again. Returns 0, or the errno of what the system refused. For records that are
// worth less than the program that writes them.
int append_whole(int descriptor, const std::string& path, std::string_view bytes);

// Makes renames and creations inside `directory` durable.
void sync_directory(const std::string& directory);
// Creates the directory and its parents; InputError naming the one that cannot be made.
void make_directories(const std::string& directory);
// Removes a directory tree or a file; absent is fine. InputError when the system refuses.
void remove_tree(const std::string& path);

}  // namespace trireme
