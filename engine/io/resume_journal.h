// Valid prefix of a partial file, from which a later process resumes writing (atomic_file.h).
//
// The text file "<path>.journal" has lines of 16 hex digits: the first identifies the content, line
// k + 1 is the checksum of the file's first k * kJournalStep bytes. A resuming process reads those
// bytes and keeps the prefix whose checksums match. Hence nothing is synced while writing: bytes
// that a kill or a crash of the machine lost or damaged are detected and written again.
#pragma once

#include <cstdint>
#include <string>

#include "engine/io/checksum.h"

namespace trireme {

inline constexpr int64_t kJournalStep = int64_t{1} << 20;  // bytes

class ResumeJournal {
 public:
  // identity: text that determines the content. Adds the valid prefix of the existing file
  // `descriptor`, kept() bytes, to `sum`. Throws FileError if the journal cannot be written.
  ResumeJournal(std::string path, const std::string& identity, int descriptor, ChecksumStream& sum);
  ~ResumeJournal();
  ResumeJournal(const ResumeJournal&) = delete;
  ResumeJournal& operator=(const ResumeJournal&) = delete;

  int64_t kept() const { return kept_; }  // bytes, a multiple of kJournalStep
  bool discarded_partial() const {
    return discarded_partial_;
  }                                           // an earlier file had another identity
  bool empty() const { return steps_ == 0; }  // no prefix is worth keeping
  // Records `sum`, the checksum of all bytes of the file up to the next multiple of kJournalStep.
  // They must have been passed to the system. If the journal cannot be written, only a shorter
  // prefix is kept.
  void append(uint64_t sum);
  void remove() noexcept;  // removes the journal file
  // Writes the removed journal file again. If it cannot be written, nothing is kept: empty().
  void restore() noexcept;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t kept_ = 0, steps_ = 0;
  bool ended_ = false;  // by a line that could not be written
  bool discarded_partial_ = false;
};

}  // namespace trireme
