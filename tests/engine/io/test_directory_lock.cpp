// A directory has one owner at a time, however the previous one ended.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/directory_lock.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_directory_lock {
namespace {

namespace fs = std::filesystem;
using test::ScratchDirectory;

std::string refusal(const std::string& directory) {
  try {
    const DirectoryLock lock("output_dir", directory);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(DirectoryLock, NamesTheHolderAndLeavesNothing) {
  const ScratchDirectory dir;
  const std::string run = dir / "a/run";
  {
    const DirectoryLock lock("output_dir", run);
    EXPECT_TRUE(lock.holds());
    EXPECT_EQ(lock.warning(), "");
    const std::string said = refusal(run);
    EXPECT_NE(said.find(concat("output_dir ", run, " is in use by process ", getpid(), " on ")),
              std::string::npos)
        << said;
    EXPECT_TRUE(lock.holds()) << "whoever is refused takes nothing away";
  }
  EXPECT_FALSE(fs::exists(dir / "a"));
  EXPECT_EQ(refusal(run), "");
}

TEST(DirectoryLock, StaysWhatIsNotEmpty) {
  const ScratchDirectory dir;
  {
    const DirectoryLock lock("output_dir", dir / "run");
    write_file_atomically(dir / "run/metrics.jsonl", "{}\n");
  }
  EXPECT_TRUE(fs::exists(dir / "run/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(dir / "run/run.lock"));
}

TEST(DirectoryLock, IsGivenUpByAKilledProcess) {
  const ScratchDirectory dir;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const DirectoryLock lock("output_dir", dir / "run");
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_NE(refusal(dir / "run").find(concat("process ", child, " on ")), std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(fs::exists(dir / "run/run.lock"));
  EXPECT_EQ(refusal(dir / "run"), "");
}

TEST(DirectoryLock, KnowsThatItsDirectoryIsGone) {
  const ScratchDirectory dir;
  const DirectoryLock lock("output_dir", dir / "run");
  fs::rename(dir / "run", dir / "moved");
  EXPECT_FALSE(lock.holds());
  const DirectoryLock other("output_dir", dir / "run");
  EXPECT_TRUE(other.holds());
  EXPECT_FALSE(lock.holds());
}

TEST(DirectoryLock, SaysWhatCannotBeCreated) {
  const ScratchDirectory dir;
  write_file_atomically(dir / "file", "x");
  EXPECT_NE(refusal(dir / "file/run").find("cannot be created"), std::string::npos);
  EXPECT_TRUE(fs::is_regular_file(dir / "file"));
}

}  // namespace
}  // namespace trireme::test_directory_lock
