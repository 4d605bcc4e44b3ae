// What of a half written file is whole, so that a later process goes on with it (atomic_file.h).
//
// The text file "<path>.journal" has lines of 16 hex digits: the first tells the content from any
// other, line k + 1 is the checksum of the file's first k kJournalStep bytes. Whoever goes on reads
// those bytes and believes them as far as their checksums agree. So nothing has to be synced on the
// way, and neither a kill nor a crash of the machine, whatever it left on the disk, makes a wrong
// byte pass for a right one.
#pragma once

#include <cstdint>
#include <string>

#include "engine/io/checksum.h"

namespace trireme {

inline constexpr int64_t kJournalStep = int64_t{1} << 20;

class ResumeJournal {
 public:
  // identity: what decides about the content. What is there already of the file `descriptor` is
  // read into `sum` as far as it is whole; kept() bytes are.
  ResumeJournal(std::string path, const std::string& identity, int descriptor, ChecksumStream& sum);
  ~ResumeJournal();
  ResumeJournal(const ResumeJournal&) = delete;
  ResumeJournal& operator=(const ResumeJournal&) = delete;

  int64_t kept() const { return kept_; }
  bool begun_anew() const { return begun_anew_; }  // there was something, of another identity
  bool empty() const { return steps_ == 0; }       // nothing is worth being kept
  // The checksum of all bytes up to the next multiple of kJournalStep, which the system has taken.
  // A full disk only makes what is kept less.
  void append(uint64_t sum);
  void remove() noexcept;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t kept_ = 0, steps_ = 0;
  bool begun_anew_ = false;
};

}  // namespace trireme
