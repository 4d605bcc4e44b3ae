// A resumable file continues where an interrupted writer of the same content stopped, after its
// last whole data; a file with other content is started again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "tests/engine/io/small_disk.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_resumable_file {
namespace {

namespace fs = std::filesystem;
using test::ScratchDirectory;

constexpr int64_t kSize = 5 * kJournalStep + 12345;

std::string contents_of(int64_t bytes) {
  std::string out(static_cast<size_t>(bytes), '\0');
  uint32_t x = 1;
  for (char& c : out) c = static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
  return out;
}

std::string_view part(const std::string& all, int64_t begin, int64_t end) {
  return std::string_view(all).substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

// File left by a writer that ended after `bytes` without commit().
void interrupt(const std::string& path, const std::string& all, int64_t bytes,
               const std::string& identity = "content") {
  AtomicFile file(path, kSize, identity);
  ASSERT_EQ(file.kept(), 0);
  for (int64_t at = 0; at < bytes; at += 300'000)
    file.write(part(all, at, std::min(bytes, at + 300'000)));
}

// Lowers a limit of this process for a while.
template <class Resource>
class LoweredLimit {
 public:
  LoweredLimit(Resource resource, size_t limit) : resource_(resource) {
    getrlimit(resource_, &before_);
    rlimit lower = before_;
    lower.rlim_cur = limit;
    setrlimit(resource_, &lower);
  }
  ~LoweredLimit() { setrlimit(resource_, &before_); }
  LoweredLimit(const LoweredLimit&) = delete;
  LoweredLimit& operator=(const LoweredLimit&) = delete;

 private:
  Resource resource_;
  rlimit before_{};
};

// Resumes and completes the file. Returns the number of bytes that were kept.
int64_t finish(const std::string& path, const std::string& all) {
  AtomicFile file(path, kSize, "content");
  const int64_t kept = file.kept();
  file.skip(kept / 2);  // the other half is written again and skipped
  file.write(part(all, kept / 2, kSize));
  EXPECT_EQ(file.size(), kSize);
  EXPECT_EQ(file.checksum(), checksum(std::as_bytes(std::span(all))));
  file.commit();
  EXPECT_EQ(read_small_file(path), all);
  EXPECT_FALSE(fs::exists(path + ".tmp"));
  EXPECT_FALSE(fs::exists(path + ".journal"));
  return kept;
}

TEST(ResumableFile, GoesOnFromTheLastWholeStep) {
  const std::string all = contents_of(kSize);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kJournalStep - 1, kJournalStep,
                              kJournalStep + 1, 3 * kJournalStep + 70'000, kSize}) {
    const ScratchDirectory dir;
    interrupt(dir / "file", all, bytes);
    EXPECT_FALSE(fs::exists(dir / "file"));
    EXPECT_EQ(fs::exists(dir / "file.tmp"), bytes >= kJournalStep) << "nothing else is worth it";
    EXPECT_EQ(finish(dir / "file", all), bytes / kJournalStep * kJournalStep) << bytes;
  }
}

TEST(ResumableFile, GoesOnAfterAKill) {
  const std::string all = contents_of(kSize);
  const ScratchDirectory dir;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(dir / "file", kSize, "content");
    file.write(part(all, 0, 3 * kJournalStep + 5));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(finish(dir / "file", all), 3 * kJournalStep);
}

TEST(ResumableFile, ReadsWhatIsKept) {
  const std::string all = contents_of(kSize);
  const ScratchDirectory dir;
  interrupt(dir / "file", all, 2 * kJournalStep);
  const AtomicFile file(dir / "file", kSize, "content");
  std::string some(1000, '\0');
  file.read_kept(kJournalStep - 500, std::as_writable_bytes(std::span(some)));
  EXPECT_EQ(some, part(all, kJournalStep - 500, kJournalStep + 500));
  EXPECT_THROW(file.read_kept(2 * kJournalStep - 999, std::as_writable_bytes(std::span(some))),
               Error);
}

TEST(ResumableFile, IsBegunAnewForOtherContent) {
  const std::string all = contents_of(kSize);
  const ScratchDirectory dir;
  interrupt(dir / "file", all, 2 * kJournalStep, "other content");
  {
    const AtomicFile file(dir / "file", kSize, "content");
    EXPECT_TRUE(file.discarded_partial());
    EXPECT_EQ(file.kept(), 0);
  }
  EXPECT_EQ(finish(dir / "file", all), 0);
}

// After a machine crash the disk may hold anything.
TEST(ResumableFile, BelievesNoByteThatIsNotWhatWasWritten) {
  const std::string all = contents_of(kSize);
  const auto kept_after = [&](const std::function<void(const std::string&)>& damage) {
    const ScratchDirectory dir;
    interrupt(dir / "file", all, 4 * kJournalStep + 9);
    damage(dir / "file");
    return finish(dir / "file", all);
  };
  EXPECT_EQ(kept_after([](const std::string&) {}), 4 * kJournalStep);
  EXPECT_EQ(kept_after([](const std::string& path) {
              std::fstream(path + ".tmp", std::ios::in | std::ios::out | std::ios::binary)
                  .seekp(2 * kJournalStep + 77)
                  .put('!');
            }),
            2 * kJournalStep);
  EXPECT_EQ(kept_after([](const std::string& path) {
              fs::resize_file(path + ".tmp", 3 * kJournalStep - 1);
            }),
            2 * kJournalStep);
  EXPECT_EQ(
      kept_after([](const std::string& path) { fs::resize_file(path + ".journal", 17 * 2 + 3); }),
      kJournalStep);
  EXPECT_EQ(
      kept_after([](const std::string& path) { write_file_atomically(path + ".journal", "x"); }),
      0);
  EXPECT_EQ(kept_after([](const std::string& path) { fs::remove(path + ".tmp"); }), 0);
}

TEST(ResumableFile, GoesOnAfterARefusedRename) {
  const ScratchDirectory dir;
  const std::string all = contents_of(kSize), path = dir / "file";
  {
    AtomicFile file(path, kSize, "content");
    file.write(all);
    fs::create_directories(path + "/occupied");
    EXPECT_THROW(file.commit(), InputError);
  }
  EXPECT_TRUE(fs::exists(path + ".journal"));
  fs::remove_all(path);
  EXPECT_EQ(finish(path, all), 5 * kJournalStep);
}

TEST(ResumableFile, LeavesNoPartialFileWithoutItsJournal) {
  const ScratchDirectory dir;
  const std::string path = dir / "file";
  {
    AtomicFile file(path, kSize, "content");
    file.write(contents_of(kSize));
    fs::create_directories(path + "/occupied");
    fs::remove(path + ".journal");
    fs::create_directories(path + ".journal/occupied");
    EXPECT_THROW(file.commit(), InputError);
  }
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(ResumableFile, GoesOnAfterAJournalThatCouldNotBeOpened) {
  const ScratchDirectory dir;
  const std::string all = contents_of(kSize), path = dir / "file";
  interrupt(path, all, 2 * kJournalStep);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(next, 0);
  ::close(next);
  {
    const LoweredLimit one_file(RLIMIT_NOFILE, static_cast<size_t>(next) + 1);
    EXPECT_THROW(AtomicFile(path, kSize, "content"), InputError);
  }
  EXPECT_EQ(finish(path, all), 2 * kJournalStep);
}

// Also if the disk is full for a short time only.
TEST(ResumeJournal, EndsAtALineThatCouldNotBeWritten) {
  constexpr size_t kLine = 17;
  const ScratchDirectory dir;
  const std::string all = contents_of(kSize), path = dir / "file", journal_path = dir / "journal";
  write_file_atomically(path, all);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  {
    ChecksumStream sum;
    ResumeJournal journal(journal_path, "content", descriptor, sum);
    const auto append_step = [&](int64_t step) {
      const std::string_view bytes = part(all, step * kJournalStep, (step + 1) * kJournalStep);
      sum.update(std::as_bytes(std::span(bytes)));
      journal.append(sum.value());
    };
    append_step(0);
    append_step(1);
    {
      const LoweredLimit five_bytes(RLIMIT_FSIZE, 3 * kLine + 5);
      append_step(2);
    }
    append_step(3);
    EXPECT_EQ(fs::file_size(journal_path), 3 * kLine);
    journal.remove();
    journal.restore();
  }
  {
    ChecksumStream sum;
    const ResumeJournal journal(journal_path, "content", descriptor, sum);
    EXPECT_EQ(journal.kept(), 2 * kJournalStep);
    EXPECT_EQ(sum.value(), checksum(std::as_bytes(std::span(all).first(2 * kJournalStep))));
  }
  ::close(descriptor);
}

TEST(ResumableFile, GoesOnAfterAFullDisk) {
  const ScratchDirectory dir;
  const test::SmallDisk disk(dir / "disk", 6 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const std::string all = contents_of(kSize), path = disk / "file";
  {
    AtomicFile file(path, kSize, "content");
    write_file_atomically(disk / "other", std::string(3 << 20, 'x'));
    EXPECT_THROW(file.write(all), InputError);
  }
  EXPECT_THROW(AtomicFile(path, kSize, "content"), InputError) << "still no room";
  EXPECT_TRUE(fs::exists(path + ".tmp"));
  fs::remove(disk / "other");
  EXPECT_EQ(finish(path, all), 2 * kJournalStep);
}

}  // namespace
}  // namespace trireme::test_resumable_file
