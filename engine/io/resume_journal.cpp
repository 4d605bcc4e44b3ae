#include "engine/io/resume_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/io/atomic_file.h"

namespace trireme {
namespace {

constexpr size_t kLine = 17;  // 16 digits and a line feed
constexpr int64_t kMaxJournal = int64_t{1} << 30;

std::string line_of(uint64_t sum) { return checksum_text(sum) + "\n"; }

// Complete lines of a journal; a last line torn by a kill is skipped.
std::vector<uint64_t> read_lines(const std::string& path) {
  std::vector<uint64_t> lines;
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return lines;
  const std::string all = read_small_file(path, kMaxJournal);
  for (size_t at = 0; at + kLine <= all.size(); at += kLine) {
    uint64_t value = 0;
    if (all[at + kLine - 1] != '\n' || !parse_checksum(all.substr(at, kLine - 1), value)) break;
    lines.push_back(value);
  }
  return lines;
}

// Reads step `number` of the file into `block`; false if the file is shorter.
bool read_step(int descriptor, int64_t number, std::vector<std::byte>& block) {
  size_t done = 0;
  while (done < block.size()) {
    const ssize_t got = ::pread(descriptor, block.data() + done, block.size() - done,
                                number * kJournalStep + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

// Number of steps of the file that match the journal; `sum` is their checksum.
int64_t agreeing_steps(int descriptor, const std::vector<uint64_t>& lines, ChecksumStream& sum) {
  std::vector<std::byte> block(static_cast<size_t>(kJournalStep));
  int64_t steps = 0;
  for (size_t line = 1; line < lines.size() && read_step(descriptor, steps, block); ++line) {
    sum.update(block);
    if (sum.value() == lines[line]) {
      ++steps;
      continue;
    }
    sum.reset();  // excludes the step that differs
    for (int64_t k = 0; k < steps && read_step(descriptor, k, block); ++k) sum.update(block);
    break;
  }
  return steps;
}

}  // namespace

ResumeJournal::ResumeJournal(std::string path, const std::string& identity, int descriptor,
                             ChecksumStream& sum)
    : path_(std::move(path)) {
  const uint64_t wanted = checksum(std::as_bytes(std::span(identity)));
  const std::vector<uint64_t> lines = read_lines(path_);
  const bool same = !lines.empty() && lines[0] == wanted;
  discarded_partial_ = lines.size() > 1 && !same;
  if (same) steps_ = agreeing_steps(descriptor, lines, sum);
  kept_ = steps_ * kJournalStep;
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail_file("create", path_, errno);
  const off_t length = same ? static_cast<off_t>(kLine) * (steps_ + 1) : 0;
  int error_number = ::ftruncate(descriptor_, length) == 0 ? 0 : errno;
  if (!same && error_number == 0) error_number = append_whole(descriptor_, path_, line_of(wanted));
  if (error_number == 0) return;
  ::close(descriptor_);
  fail_file("write", path_, error_number);
}

ResumeJournal::~ResumeJournal() { ::close(descriptor_); }

void ResumeJournal::append(uint64_t sum) {
  if (ended_) return;
  ended_ = true;  // unless the line is written
  if (append_whole(descriptor_, path_, line_of(sum)) != 0) return;
  ended_ = false;
  ++steps_;
}

void ResumeJournal::remove() noexcept { ::unlink(path_.c_str()); }

void ResumeJournal::restore() noexcept {
  try {  // the removed file is still open
    std::string lines(kLine * static_cast<size_t>(steps_ + 1), '\0');
    read_fully(descriptor_, 0, std::as_writable_bytes(std::span(lines)), path_);
    write_file_atomically(path_, lines);
  } catch (const std::exception&) {  // the caller reports why the rename failed
    steps_ = 0;
  }
}

}  // namespace trireme
